-- Whether a sandbox's policy can be enforced and changed: its node has opened the boundary's listeners in it.
ALTER TABLE sandboxes ADD COLUMN network_gate boolean NOT NULL DEFAULT false;
