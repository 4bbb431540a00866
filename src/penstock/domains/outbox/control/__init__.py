"""What keeps instructions from being sent, and what operators decide about them."""
