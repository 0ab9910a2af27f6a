-- How long the lease was taken for: one that ends further away than that was written before the clock stepped back.
ALTER TABLE jobs ADD COLUMN lease_s integer;
