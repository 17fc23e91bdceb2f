/* The agent in the test unikernel, on a bare machine: each vCPU's local timer is the interrupt, and the second serial line
 * the byte stream, which vCPU 0 serves in its interrupt, after its own sample. */
#include "guest.h"
#include "uniprof_agent.h"

#define TIMER_HZ 500
#define LINE 0x2f8
#define WORDS_EACH (8 + 16384)
#define MOST_CALLS 4                    /* of serve in an interrupt */

static volatile u32 *const local_apic = (u32 *)0xfee00000;
static u64 memory[MAX_VCPUS * WORDS_EACH];
static struct uniprof_session session;
extern char image_text[], image_text_end[], build_id_note[];

static u64 now(void)
{
	u32 low, high;
	asm volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

static int64_t line_read(void *context, u8 *into, u64 bytes)
{
	u64 count = 0;
	(void)context;
	while (count < bytes && inb(LINE + 5) & 1)
		into[count++] = inb(LINE);
	return count;
}

static int64_t line_write(void *context, const u8 *from, u64 bytes)
{
	u64 count = 0;
	(void)context;
	while (count < bytes && inb(LINE + 5) & 0x20)
		for (int room = 16; room && count < bytes; room--)
			outb(LINE, from[count++]);
	return count;
}

/* Ticks of the time-stamp counter in a second, by the local timer, which has a billion. */
static u64 measure(void)
{
	const u32 ticks = 50000000;
	local_apic[0xf0 / 4] = 0x1ff;
	local_apic[0x3e0 / 4] = 0xb;
	local_apic[0x320 / 4] = 0x10000;
	local_apic[0x380 / 4] = ~0u;
	u64 began = now();
	while (~0u - local_apic[0x390 / 4] < ticks)
		;
	return (now() - began) * 20;
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
	u64 hz = measure();
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
	outb(LINE + 1, 0);              /* no interrupts of the line */
	outb(LINE + 3, 3);
	outb(LINE + 2, 7);
	outb(LINE + 4, 3);
	outb(0x21, 0xff);
	outb(0xa1, 0xff);
}

struct frame { u64 ip, cs, flags, sp, ss; };

/* Of vCPU 0's interrupts, for whoever reads it from outside: how many there were, the work that was done until the
 * last, and the ticks that taking samples and serving the line took in all of them. Whole where begun is ended. */
volatile struct { u64 ended, work, sampling, serving, begun; } agent_interrupts;

__attribute__((interrupt)) void agent_timer(struct frame *frame)
{
	u32 vcpu = local_apic[0x20 / 4] >> 24;
	const struct uniprof_registers registers = {
		.ip = frame->ip, .sp = frame->sp, .fp = *(u64 *)__builtin_frame_address(0),
	};
	agent_interrupts.begun += !vcpu;
	u64 began = now();
	uniprof_agent_sample(vcpu, &registers);
	u64 sampled = now();
	if (!vcpu) {
		struct uniprof_stream stream = { line_read, line_write, 0 };
		for (int call = 0; call < MOST_CALLS; call++)
			if (uniprof_session_serve(&session, &stream) != 1)
				break;
		agent_interrupts.sampling += sampled - began;
		agent_interrupts.serving += now() - sampled;
		agent_interrupts.work = progress[0][0];
		agent_interrupts.ended++;
	}
	local_apic[0xb0 / 4] = 0;
}

void agent_start(void)
{
	load_idt();
	local_apic[0xf0 / 4] = 0x1ff;
	local_apic[0x3e0 / 4] = 0xb;
	local_apic[0x320 / 4] = 0x20000 | AGENT_VECTOR;
	local_apic[0x380 / 4] = 1000000000 / TIMER_HZ;
	asm volatile("sti");
}
