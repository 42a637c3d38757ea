"""What the tools of all domains do, over archetypes: look-ups, contracts, accounts."""
