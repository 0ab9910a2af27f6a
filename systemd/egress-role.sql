-- egress-role.sql - what gatehouse-egress may do in the database: no more than its statements need (sql/query/egress.sql, and
-- events of sessions). Run once as the owner, after `gatehouse migrate`; again after an upgrade that says so.
--   sudo -u postgres createuser gatehouse-egress
--   sudo -u gatehouse psql -d gatehouse -v role=gatehouse-egress -f /usr/lib/gatehouse/egress-role.sql
GRANT SELECT (id, org, session, status, network, network_version, network_applied), UPDATE (network_applied)
  ON sandboxes TO :"role";
GRANT SELECT, INSERT, DELETE ON egress_audit TO :"role";
GRANT SELECT ON egress_credentials TO :"role";
GRANT SELECT (id, org, state, last_seq, root), UPDATE (last_seq) ON sessions TO :"role";
GRANT INSERT ON events TO :"role";
