/* The work whose shares are known: every burn() counts its iterations in progress[], so the
 * truth is the weights below, whatever the machine's speed. README.md has them as a table. */
#include "guest.h"

#define UNIT 8000                       /* iterations; a round is 100 units */

static volatile u64 slowness = 1;       /* slow=N: a unit is so many times as long */

/* progress[v][0]: iterations of vCPU v so far; one cache line each. */
volatile u64 progress[MAX_VCPUS][8];
static volatile u64 interrupt_progress;
static volatile u64 sink;

/* GCC drops the frame of a leaf that does not touch the stack, whatever it is told; this keeps it. */
#if defined NO_FRAME_POINTER || defined FRAMELESS_LEAF
#define KEEP_FRAME
#else
#define KEEP_FRAME asm volatile("" ::"r"(__builtin_frame_address(0)))
#endif

NOINLINE void burn(volatile u64 *counter, u64 units)
{
	KEEP_FRAME;
	for (u64 i = units * UNIT * slowness; i; i--)
		(*counter)++;
}

/* ---- the ordinary call tree: three ways to burn, of different depths */
NOINLINE void alpha(int vcpu, u64 units) { burn(progress[vcpu], units); sink++; }
NOINLINE void beta_inner(int vcpu, u64 units) { burn(progress[vcpu], units); sink++; }
NOINLINE void beta(int vcpu, u64 units) { beta_inner(vcpu, units); sink++; }
NOINLINE void gamma_leaf(int vcpu, u64 units) { burn(progress[vcpu], units); sink++; }
NOINLINE void gamma_middle(int vcpu, u64 units) { gamma_leaf(vcpu, units); sink++; }
NOINLINE void gamma(int vcpu, u64 units) { gamma_middle(vcpu, units); sink++; }

static const u8 weights[4][3] = {       /* alpha, beta, gamma: per cent of vCPU n % 4 */
	{ 50, 30, 20 },
	{ 70, 20, 10 },
	{ 20, 20, 60 },
	{ 10, 80, 10 },
};

static u64 slower;                      /* slower=N: alpha takes N units more in each round, in added() */

NOINLINE void added(int vcpu, u64 units) { burn(progress[vcpu], units); sink++; }
NOINLINE void slower_alpha(int vcpu, u64 units) { alpha(vcpu, units); added(vcpu, slower); sink++; }

NOINLINE void ordinary_round(int vcpu)
{
	const u8 *share = weights[vcpu & 3];
	if (slower)
		slower_alpha(vcpu, share[0]);
	else
		alpha(vcpu, share[0]);
	beta(vcpu, share[1]);
	gamma(vcpu, share[2]);
}

/* ---- naps: a tenth of the ordinary work, then sleep, from the begin of one to that of the next 2 to 5 ms */
NOINLINE void nap_round(int vcpu)
{
	static u64 random = 1;
	const u8 *share = weights[vcpu & 3];
	alpha(vcpu, share[0] / 10);
	beta(vcpu, share[1] / 10);
	gamma(vcpu, share[2] / 10);
	random = random * 6364136223846793005 + 1442695040888963407;
	nap(vcpu, 2000000 + (random >> 32) % 3000000);
}

#ifdef __x86_64__
/* ---- stall=N: quiet, busy and silent by turns, N periods of the timer (80 ms) each, and then the end; each of the
 * three is a function, `stalls_once` runs once, `silent` lasts twice as long */
NOINLINE void burn_ticks(int vcpu, u64 count)
{
	for (u64 since = ticks(); ticks() - since < count;)
		burn(progress[vcpu], 1);
}

/* Xen's periodic timer does not wake a PV guest. */
static void wait_period(int vcpu)
{
	if (platform == XEN_PV)
		nap(vcpu, 80000000);
	else
		block();
}

NOINLINE void quiet(int vcpu, u64 periods)
{
	while (periods--) {
		u64 since = ticks();
		wait_period(vcpu);
		burn_ticks(vcpu, (ticks() - since) / 8);
	}
}

NOINLINE void silent(int vcpu, u64 periods)
{
	while (periods--)
		wait_period(vcpu);
}

NOINLINE void stalls_once(int vcpu, u64 count) { burn_ticks(vcpu, count); sink++; }

NOINLINE void stall_round(int vcpu, u64 periods)
{
	u64 since = ticks();
	quiet(vcpu, periods);
	stalls_once(vcpu, ticks() - since);
	quiet(vcpu, periods);
	silent(vcpu, 2 * periods);
	quiet(vcpu, periods / 4);
}
#endif

/* ---- deep=N: N frames of descend() under burn() */
NOINLINE void descend(int vcpu, u64 depth)
{
	if (depth > 1)
		descend(vcpu, depth - 1);
	else
		burn(progress[vcpu], 100);
	sink++;
}

/* ---- irq: the timer's handler burns one unit for every three of the interrupted work */
NOINLINE void interrupt_work(u64 iterations) { burn(&interrupt_progress, iterations / UNIT); sink++; }

static u64 only_wakes;                  /* the timer ends halts, and does no work */

NOINLINE void timer_tick(void)
{
	static u64 seen;
	if (only_wakes) {
		timer_acknowledge();
		return;
	}
	u64 now = progress[0][0];
	u64 owed = (now - seen) / 3 / UNIT * UNIT;
	interrupt_work(owed);
	seen += owed * 3;
	timer_acknowledge();
}

/* ---- broken frame-pointer chains; each function repairs its own frame before it returns */
#define FRAME ((volatile u64 *)__builtin_frame_address(0))

NOINLINE void with_parent(int vcpu, u64 parent, u64 units)
{
	u64 saved = FRAME[0];
	FRAME[0] = parent;
	burn(progress[vcpu], units);
	FRAME[0] = saved;
}

NOINLINE void cycle_inner(int vcpu, volatile u64 *outer)
{
	u64 saved = outer[0];
	outer[0] = (u64)__builtin_frame_address(0);     /* outer -> inner -> outer */
	burn(progress[vcpu], 50);
	outer[0] = saved;
}

NOINLINE void cycle_round(int vcpu)
{
	cycle_inner(vcpu, FRAME);
	u64 saved = FRAME[0];
	FRAME[0] = (u64)FRAME;                          /* a frame that is its own caller */
	burn(progress[vcpu], 50);
	FRAME[0] = saved;
}

NOINLINE void nowhere_round(int vcpu)
{
	static const u64 nowhere[] = {
		0x10, 0xdeadbeefdeadbeef, 0x00007ffffffffff8, 0xffff900000000000, 0xfffffffffffffff8,
		0x0000700000001000, 0x12345, 0x8000000000000000, 0x00000000fffffff8, 0x0000123456789abc,
	};
	for (u64 i = 0; i < sizeof nowhere / sizeof *nowhere; i++)
		with_parent(vcpu, nowhere[i], 10);
}

NOINLINE void outside_round(int vcpu)
{
	static const u64 outside[] = {
		OUTSIDE + 0x100, OUTSIDE + 0x200100, OUTSIDE + 0x400100, OUTSIDE + 0x40000100,
	};
	for (u64 i = 0; i < sizeof outside / sizeof *outside; i++)
		with_parent(vcpu, outside[i], 25);
}

/* ---- remap: the same stack addresses show two frames in turn, with different callers in them */
static char window[4096] __attribute__((aligned(4096)));
static char frames[2][4096] __attribute__((aligned(4096)));

NOINLINE void on_first_frame(u64 vcpu) { burn(progress[vcpu], 70); sink++; }
NOINLINE void on_second_frame(u64 vcpu) { burn(progress[vcpu], 30); sink++; }

NOINLINE void remap_round(int vcpu)
{
	map_page(window, frames[0]);
	run_on(window + sizeof window, on_first_frame, vcpu);
	map_page(window, frames[1]);
	run_on(window + sizeof window, on_second_frame, vcpu);
}

/* ---- which of these; the command line is words and word=number */
static int option(const char *name, u64 *value)
{
	for (const char *at = command_line; *at;) {
		const char *letter = name;
		while (*letter && *letter == *at)
			letter++, at++;
		if (!*letter && (!*at || *at == ' ' || *at == '=')) {
			*value = 0;
			while (*at && *at != ' ')
				if (*at++ != '=')
					*value = *value * 10 + at[-1] - '0';
			return 1;
		}
		while (*at && *at != ' ')
			at++;
		while (*at == ' ')
			at++;
	}
	return 0;
}

/* hold: no vCPU begins its work until someone from outside writes 0 here. */
volatile u64 hold;

struct plan {
	u64 deep, irq, block, cycle, naps, nowhere, outside, remap, rounds, reason, late, vcpus, exits, rest, halts, plant,
	    stall;
};
static struct plan plan;

static void read_plan(void)
{
	static const struct { const char *name; u64 *value; } options[] = {
		{ "deep", &plan.deep }, { "rounds", &plan.rounds }, { "reason", &plan.reason },
		{ "late", &plan.late }, { "vcpus", &plan.vcpus }, { "exits", &plan.exits },
		{ "rest", &plan.rest }, { "halts", &plan.halts }, { "plant", &plan.plant }, { "stall", &plan.stall },
	};
	static const struct { const char *name; u64 *value; } words[] = {
		{ "irq", &plan.irq }, { "block", &plan.block }, { "cycle", &plan.cycle },
		{ "naps", &plan.naps }, { "nowhere", &plan.nowhere }, { "outside", &plan.outside }, { "remap", &plan.remap },
	};
	u64 ignored;
	plan.rest = 10;
	plan.halts = 8;
	for (u64 i = 0; i < sizeof options / sizeof *options; i++)
		option(options[i].name, options[i].value);
	if (option("slow", &ignored) && ignored)
		slowness = ignored;
	option("slower", &slower);
	hold = option("hold", &ignored);
	only_wakes = plan.exits | plan.stall;
	for (u64 i = 0; i < sizeof words / sizeof *words; i++)
		*words[i].value = option(words[i].name, &ignored);
}

NOINLINE void one_round(int vcpu)
{
	if (vcpu || !(plan.cycle | plan.naps | plan.nowhere | plan.outside | plan.remap | plan.deep))
		ordinary_round(vcpu);
	else if (plan.naps)
		nap_round(vcpu);
	else if (plan.cycle)
		cycle_round(vcpu);
	else if (plan.nowhere)
		nowhere_round(vcpu);
	else if (plan.outside && platform != XEN_PV)
		outside_round(vcpu);
	else if (plan.remap)
		remap_round(vcpu);
	else
		descend(vcpu, plan.deep ? plan.deep : 1);
}

static void end(void)
{
	print("rounds done\r\n");
	shut_down(plan.reason);
}

static void while_held(int vcpu)
{
#ifdef __x86_64__
	if (plan.stall)         /* neither busy nor silent */
		quiet(vcpu, 1);
#endif
	(void)vcpu;
}

NOINLINE void work(u64 vcpu)
{
	while (hold)
		while_held(vcpu);
	if (plan.block && vcpu == 1)
		for (;;)
			block();
#ifdef __x86_64__
	for (u64 round = 1; !vcpu && round <= plan.exits; round++)
		exits_round(vcpu, plan.rest, plan.irq && plan.halts && round % plan.halts == 0);
	if (!vcpu && plan.stall) {
		stall_round(vcpu, plan.stall);
		end();
	}
#endif
	for (u64 round = 1;; round++) {
		one_round(vcpu);
		if (vcpu)
			continue;
		if (plan.late && round == plan.late)
			start_vcpu(3);
		if (round % 128 == 0) {
			print("alive ");
			print_number(round);
			print("\r\n");
		}
		if (round == plan.rounds)
			end();
	}
}

/* vCPUs 1 and 2 use their stacks through larger pages, where the platform has them. */
void vcpu_main(int vcpu)
{
	static const u64 alias[4] = { 0, ALIAS_1G, ALIAS_2M, 0 };
	char *top = stacks + (vcpu + 1) * STACK_BYTES - 256;
	if (platform != XEN_PV)
		top += alias[vcpu & 3];
#ifdef AGENT
	agent_start();
#endif
	run_on(top, work, vcpu);
	for (;;)
		;
}

void guest_main(char *pv_info, u32 hvm_info)
{
	static const char *const names[] = { "Xen PV", "Xen PVH", "bare" };
	platform_init(pv_info, hvm_info);
	read_plan();
#ifdef AGENT
	agent_init(plan.vcpus ? plan.vcpus : 1);
#endif
	print("uniprof test guest up: ");
	print(names[platform]);
	print(", ");
	print(command_line);
	print("\r\n");
	for (int vcpu = 1; vcpu < MAX_VCPUS; vcpu++)
		if (!(vcpu == 3 && (plan.late || plan.block)) && start_vcpu(vcpu))
			break;
#ifdef __x86_64__
	if (plan.plant)
		plant(plan.plant);
#endif
	if (plan.irq || (plan.stall && platform != XEN_PV))
		start_timer();
	vcpu_main(0);
}
