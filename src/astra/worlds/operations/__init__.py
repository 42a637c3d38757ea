"""What tools of all domains do, over archetypes: reading, writing contracts, money, and the rest."""
