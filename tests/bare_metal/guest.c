/* A guest as far as the linker is concerned, and what the header says of sizes: agent/src/c.rs has the same. */
#include "uniprof_agent.h"

_Static_assert(sizeof(struct uniprof_stack) == 16, "Stack");
_Static_assert(sizeof(struct uniprof_guest) == 96, "CGuest");
_Static_assert(sizeof(struct uniprof_registers) == 40, "Registers");
_Static_assert(sizeof(struct uniprof_stream) == 24, "CStream");
_Static_assert(sizeof(struct uniprof_session) == 1280, "CSession");

static uint64_t memory[4096];
static struct uniprof_session session;

static uint64_t now(void) { return 0; }
static int64_t read(void *context, uint8_t *into, uint64_t bytes)
{
	(void)context, (void)into, (void)bytes;
	return 0;
}
static int64_t write(void *context, const uint8_t *from, uint64_t bytes)
{
	(void)context, (void)from, (void)bytes;
	return 0;
}

void start(void);
void start(void)
{
	const struct uniprof_guest guest = { .name = "guest", .vcpus = 1, .clock = now, .clock_hz = 1 };
	const struct uniprof_registers registers = { 0 };
	struct uniprof_stream stream = { read, write, 0 };
	if (uniprof_agent_init(memory, 4096, &guest))
		return;
	uniprof_session_init(&session);
	uniprof_agent_sample(0, &registers);
	while (uniprof_session_serve(&session, &stream) != 2)
		;
	uniprof_session_end(&session);
}
