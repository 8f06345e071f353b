"""Programs to start from, written as a user of jobs would write them."""
