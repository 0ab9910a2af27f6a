-- Nodes whose sandboxes are not isolated from the host (DRV-0): leases of an ordinary deployment never go there.
ALTER TABLE nodes ADD COLUMN isolated boolean NOT NULL DEFAULT true;
