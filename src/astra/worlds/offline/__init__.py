"""What rules answer in place of a teacher of stage ``goals``: the words that they made."""
