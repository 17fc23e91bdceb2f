/* The agent of uniprof for guests in C: a sampling profiler inside the guest (agent/README.md). One in a guest.
 * None of these functions waits, allocates or uses floating-point registers. */
#pragma once
#include <stdint.h>

/* Addresses from start to end, behind the last byte. */
struct uniprof_stack {
	uint64_t start, end;
};

/* What the agent tells of the guest. All that is pointed to stays where it is. */
struct uniprof_guest {
	const char *name;
	const uint8_t *build_id;        /* of the image; 0 to 32 bytes */
	uint64_t build_id_bytes;
	uint64_t code_start, code_end;  /* where the image's code is loaded; both 0: not known */
	uint64_t code_offset;           /* where it is in the image's file */
	uint64_t (*clock)(void);        /* one for all vCPUs, which an interrupt may read */
	uint64_t clock_hz;
	uint64_t cycles_hz;             /* of the time-stamp counter or CNTVCT_EL0; 0: not known */
	uint32_t timer_hz;              /* interrupts a second; 0: not known */
	uint32_t vcpus;
	const struct uniprof_stack *stacks;     /* always readable: frame pointers are followed inside them */
	uint64_t stacks_count;
};

/* What the timer interrupted. */
struct uniprof_registers {
	uint64_t ip, sp, fp;
	uint64_t lr;                    /* AArch64; else 0 */
	uint64_t idle;                  /* not 0: the vCPU waited for an interrupt */
};

/* A byte stream that never waits: both return how many bytes, 0 where there is nothing to read or no room at the moment,
 * and -1 where the other end has hung up. */
struct uniprof_stream {
	int64_t (*read)(void *context, uint8_t *into, uint64_t bytes);
	int64_t (*write)(void *context, const uint8_t *from, uint64_t bytes);
	void *context;
};

struct uniprof_session {
	uint64_t opaque[160];
};

/* Once, before the others. memory is zeros and the agent's alone: each vCPU has an equal part of it, of which a power of
 * two of words and eight more are used. Returns 0; -1: called twice; -2: no vCPU or more than 256; -3: too little memory;
 * -4: the clock has no frequency. */
int uniprof_agent_init(uint64_t *memory, uint64_t words, const struct uniprof_guest *guest);

/* From the timer interrupt of each vCPU, with what it interrupted. Not again on the same vCPU before it has returned. */
void uniprof_agent_sample(uint32_t vcpu, const struct uniprof_registers *registers);

/* For each connection: init, then serve again and again from one thread. serve returns 0: nothing to do, call again in a
 * while; 1: call again soon; 2: close the stream, or on a line that can't be closed begin again: the session is as after
 * init. end: the connection is given up before serve returned 2. */
void uniprof_session_init(struct uniprof_session *session);
int uniprof_session_serve(struct uniprof_session *session, struct uniprof_stream *stream);
void uniprof_session_end(struct uniprof_session *session);
