"""Where runs execute: on this machine (`local`) or on a Ray cluster (`cluster`)."""
