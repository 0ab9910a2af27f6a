/*
 * dnsserver.h - a small DNS server for tests, faithful to the wire (RFC 1035): UDP with truncation, TCP, compression of the
 * question's name. It answers from a zone and does what a bad resolver does where told so; every question is written down.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct dnsserver;

enum dns_deed {
	DNS_ANSWER,   /* the zone's records of the name and type */
	DNS_DROP,     /* say nothing */
	DNS_SERVFAIL, /* */
	DNS_GARBAGE,  /* bytes that are no message */
	DNS_LOOP,     /* a CNAME to another name and one back */
	DNS_MANY,     /* as many A records as `value` says, 93.184.216.1 and on */
};

struct dns_row {
	const char *name;
	const char *value; /* an address; its family is its type. One row for each record of a name */
	enum dns_deed deed;
	int ttl_s;
	int delay_ms;
};

/* rows end with one without name, and may be changed between questions. Names that are not there do not exist (NXDOMAIN). */
struct dnsserver *dnsserver_start(const struct dns_row *rows);
void dnsserver_rows(struct dnsserver *d, const struct dns_row *rows);
int dnsserver_port(const struct dnsserver *d);              /* on 127.0.0.1 */
int dnsserver_asked(struct dnsserver *d, const char *name); /* how often; NULL: for whatever name */
void dnsserver_end(struct dnsserver *d);
