-- A lease whose end was asked for: if the asking does not reach its node, the node's next round ends it.
ALTER TABLE sandboxes ADD COLUMN end_asked_at timestamptz;
