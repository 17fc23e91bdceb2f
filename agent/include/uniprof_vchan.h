/* The server's side of Xen's vchan for guests that have none: a stream for the agent's session, to one client in
 * another domain. agent/vchan/uniprof_vchan.c is to be compiled with the guest. It needs four things of the guest, and
 * neither waits nor allocates; one thread at a time. docs/agent-protocol.md, section 7, says what it makes of them. */
#pragma once
#include <stdint.h>

#define UNIPROF_VCHAN_PAGE 4096

/* What the guest does for it. The client is the number of the domain that may attach. */
struct uniprof_vchan_guest {
	/* Lets the client read and write the page at this address (a multiple of UNIPROF_VCHAN_PAGE) by an entry of the
	 * grant table; returns the entry's number, or -1. */
	int64_t (*grant)(uint16_t client, void *page);
	/* Offers the client an event channel (EVTCHNOP_alloc_unbound); returns our port, or -1. Its events say that there
	 * may be something to do; a guest that looks every few milliseconds anyway leaves it masked. */
	int64_t (*offer)(uint16_t client);
	/* Sends an event (EVTCHNOP_send). */
	void (*notify)(uint32_t port);
	/* Writes a key of this name below the server's path in xenstore, and lets the client read it; returns 0, or -1. */
	int (*publish)(uint16_t client, const char *name, const char *value);
	uint16_t client;
};

struct uniprof_vchan {
	uint8_t *first, *ring;
	const struct uniprof_vchan_guest *guest;
	uint32_t size, written, read, port;
	uint8_t is_attached;
};

/* Once: makes the vchan of pages that are zeros and used for nothing else: one for both sides' positions and what the
 * client says, and a power of two of them, up to 128, for samples. Returns 0; -1: another number of pages; -2: not
 * granted; -3: no event channel; -4: xenstore did not take the keys. */
int uniprof_vchan_init(struct uniprof_vchan *vchan, const struct uniprof_vchan_guest *guest, void *pages, uint32_t count);

/* For struct uniprof_stream, whose context is the vchan. Where the client has gone, read returns -1 once. */
int64_t uniprof_vchan_read(void *vchan, uint8_t *into, uint64_t bytes);
int64_t uniprof_vchan_write(void *vchan, const uint8_t *from, uint64_t bytes);
