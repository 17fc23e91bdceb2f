/* The agent in the test unikernel: each vCPU's own timer is the interrupt, and the second serial line of a bare machine
 * or Xen's vchan the byte stream, which vCPU 0 serves in its interrupt, after its own sample. */
#include "agent.h"

#define WORDS_EACH (8 + 16384)
#define MOST_CALLS 4                    /* of serve in an interrupt */

static u64 memory[MAX_VCPUS * WORDS_EACH];
static struct uniprof_session session;
static struct uniprof_stream stream;
extern char image_text[], image_text_end[], build_id_note[];

static int64_t line_read(void *context, u8 *into, u64 bytes)
{
	u64 count = 0;
	(void)context;
	while (count < bytes && line_in(5) & 1)
		into[count++] = line_in(0);
	return count;
}

static int64_t line_write(void *context, const u8 *from, u64 bytes)
{
	u64 count = 0;
	(void)context;
	while (count < bytes && line_in(5) & 0x20)
		for (int room = 16; room && count < bytes; room--)
			line_out(0, from[count++]);
	return count;
}

void agent_init(u32 vcpus)
{
	static struct uniprof_stack ranges[3];
	static struct uniprof_guest guest;
	const u64 alias[3] = { 0, ALIAS_1G, ALIAS_2M };
	for (int i = 0; i < 3; i++) {
		ranges[i].start = (u64)stacks + alias[i];
		ranges[i].end = ranges[i].start + STACK_BYTES * MAX_VCPUS;
	}
	u64 hz = ticks_in_a_second();
	guest = (struct uniprof_guest){
		.name = "test unikernel", .build_id = (u8 *)build_id_note + 16, .build_id_bytes = 20,
		.code_start = (u64)image_text, .code_end = (u64)image_text_end, .code_offset = IMAGE_TEXT_OFFSET,
		.clock = now, .clock_hz = hz, .cycles_hz = hz, .timer_hz = TIMER_HZ, .vcpus = vcpus,
		.stacks = ranges, .stacks_count = 3,
	};
	int error = uniprof_agent_init(memory, sizeof memory / sizeof *memory, &guest);
	if (error)
		fault(0xa9e, -error);
	uniprof_session_init(&session);
	if (other_stream()) {
		stream = *other_stream();
		return;
	}
	stream = (struct uniprof_stream){ line_read, line_write, 0 };
	line_init();
	line_out(1, 0);                 /* no interrupts of the line */
	line_out(3, 3);
	line_out(2, 7);
	line_out(4, 3);
}

/* Of vCPU 0's interrupts, for whoever reads it from outside: how many there were, the work that was done until the
 * last, and the ticks that taking samples and serving the line took in all of them. Whole where begun is ended. */
volatile struct { u64 ended, work, sampling, serving, begun; } agent_interrupts;

void agent_interrupt(u32 vcpu, const struct uniprof_registers *registers)
{
	agent_interrupts.begun += !vcpu;
	u64 began = now();
	uniprof_agent_sample(vcpu, registers);
	if (vcpu)
		return;
	u64 sampled = now();
	for (int call = 0; call < MOST_CALLS; call++)
		if (uniprof_session_serve(&session, &stream) != 1)
			break;
	agent_interrupts.sampling += sampled - began;
	agent_interrupts.serving += now() - sampled;
	agent_interrupts.work = progress[0][0];
	agent_interrupts.ended++;
}
