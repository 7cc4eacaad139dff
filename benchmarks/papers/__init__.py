"""What the papers behind the fleet say of rings of servers, computed again with the fleet's own."""
