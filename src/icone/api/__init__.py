"""What `icone.*` exports and the command line calls: one file for each verb."""
