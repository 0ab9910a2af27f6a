-- Balances that another service holds (the end of BIL-1). `elsewhere` is what it held beside the entries here when it was `asked`, less what
-- it may not have known of: then balance + elsewhere falls with every charge, as a balance does. NULL: the entries are all there is.
ALTER TABLE accounts ADD COLUMN elsewhere bigint, ADD COLUMN asked timestamptz,
  ADD CHECK ((elsewhere IS NULL) = (asked IS NULL));

-- What is not known is nothing: an answer counts for a minute. (One from the future was written before a clock went back.)
CREATE OR REPLACE FUNCTION money_available(a accounts) RETURNS bigint LANGUAGE sql VOLATILE AS
  'SELECT CASE WHEN a.elsewhere IS NULL THEN a.balance - a.reserved
     WHEN money_now() - a.asked BETWEEN interval ''0'' AND interval ''1 minute'' THEN a.balance + a.elsewhere - a.reserved ELSE 0 END';
CREATE OR REPLACE FUNCTION money_read(p_org text, p_subject text, p_currency text, p_test boolean)
RETURNS TABLE (balance bigint, reserved bigint, available bigint) LANGUAGE sql VOLATILE AS
  'SELECT coalesce(a.balance + a.elsewhere, a.balance), a.reserved, money_available(a) FROM accounts a
   WHERE org = p_org AND subject = p_subject AND currency = p_currency AND test = p_test';
