"""Users from an LDAP directory: one that the plan creates, or one that is there already."""
