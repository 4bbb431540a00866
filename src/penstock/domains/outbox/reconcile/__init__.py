"""What becomes known after a call: lookups at the rail, its reports, and decisions by hand."""
