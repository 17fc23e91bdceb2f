/* A second opinion on a domain, by plain privcmd calls and nothing of uniprof's:
 *   probe flags DOMID      paused=0|1 shutdown=0|1 cpu_ns=N, from getdomaininfo
 *   probe vcpus DOMID N [clock]
 *                          processor time of each of its N vCPUs in ns, from getvcpuinfo; before it, the monotonic clock's
 *   probe pause DOMID N VCPUS
 *                          medians, in ns, of N pairs of bare pause + unpause, of N of [pause,
 *                          getvcpucontext of each vCPU] in one multicall + unpause: what it takes to
 *                          fetch registers at all, and of N of [getvcpuinfo of each vCPU] in one
 *   probe beat DOMID HZ SECONDS
 *                          as often as that, or as it gets, a bare pause + unpause; how many it were
 *   probe kill DOMID US AFTER COMMAND...
 *                          starts a command and kills it (SIGKILL) so many microseconds later: after its `start`, after
 *                          the file AFTER is a recording with a block, or, at `freeze`, as soon as the domain is found
 *                          standing still from then on, if that comes about; says "frozen" if it did stand still when
 *                          it was killed, before anyone could mend that; exit status 1 if it does not run
 *                          2 s later; says on stderr after how many milliseconds it was seen to run, 50 apart
 *   probe word DOMID ADDRESS [VALUE]
 *                          the 64-bit number at a guest-physical address of a PVH guest; with VALUE, writes that there
 *   probe trace on|off|ask says which events Xen traces, and whether records come; then turns the trace on, for all
 *                          events, or off, and empties the buffers
 *   probe cpu COMMAND...   processor time of a command and its children, in ns, and the largest resident size
 *                          of one of them, in KiB
 * Layouts: xen/include/public/domctl.h; Linux, include/uapi/xen/privcmd.h. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct domctl {
	uint32_t cmd, version;
	uint16_t domain, pad[3];
	union { uint32_t words[32]; uint64_t longs[16]; } u;
};
struct hypercall { uint64_t op, arg[5]; };
struct multicall { uint64_t op, result, arg[6]; };
enum { PAUSE = 3, UNPAUSE = 4, GET_DOMAIN_INFO = 5, GET_CONTEXT = 13, GET_INFO = 14, INTERFACE_4_17 = 0x15 };
enum { HYPERVISOR_MULTICALL = 13, HYPERVISOR_SYSCTL = 35, HYPERVISOR_DOMCTL = 36 };
struct tbuf_op {
	uint32_t cmd, pad;
	uint64_t mask, mask_bits;
	uint32_t events, pad2;
	uint64_t frame, size;
};
struct sysctl { uint32_t cmd, version; union { struct tbuf_op tbuf; uint64_t longs[16]; } u; };
enum { TBUF_OP = 2, GET_INFO_OF_TRACE = 0, SET_EVENTS = 2, SET_SIZE = 3, ENABLE = 4, DISABLE = 5, SYSCTL_4_17 = 0x15 };
enum { TRC_ALL = 0x0ffff000, DOMID_XEN = 0x7ff2 };
struct mapbatch { uint32_t count; uint16_t domain; uint64_t address; const uint64_t *frames; int *errors; };

static int privcmd;
static struct domctl *page;

static int hypercall(uint64_t op, void *first, uint64_t second)
{
	struct hypercall call = { op, { (uint64_t)first, second } };
	return ioctl(privcmd, _IOC(_IOC_NONE, 'P', 0, sizeof call), &call);
}

static struct domctl *fill(struct domctl *at, uint32_t cmd, uint16_t domain)
{
	memset(at, 0, sizeof *at);
	at->cmd = cmd;
	at->version = INTERFACE_4_17;
	at->domain = domain;
	return at;
}

static int domctl(uint32_t cmd, uint16_t domain)
{
	return hypercall(HYPERVISOR_DOMCTL, fill(page, cmd, domain), 0);
}

static int tbuf(uint32_t cmd, uint32_t events, uint32_t size)
{
	struct sysctl *call = (struct sysctl *)page;
	memset(call, 0, sizeof *call);
	*call = (struct sysctl){ TBUF_OP, SYSCTL_4_17, { .tbuf = { .cmd = cmd, .events = events, .size = size } } };
	return hypercall(HYPERVISOR_SYSCTL, call, 0);
}

/* The page's first KiB is for one call, then come calls of a multicall, their domctls, and contexts. */
enum { MOST_VCPUS = 8, CONTEXT_BYTES = 5184, PAGES_BYTES = 16384 + MOST_VCPUS * CONTEXT_BYTES };

static int several(uint16_t domain, int vcpus, int pause)
{
	struct multicall *calls = (struct multicall *)((char *)page + 4096);
	struct domctl *domctls = (struct domctl *)((char *)page + 8192);
	int count = 0;
	if (pause)
		fill(domctls + count++, PAUSE, domain);
	for (int vcpu = 0; vcpu < vcpus; vcpu++) {
		struct domctl *one = fill(domctls + count++, pause ? GET_CONTEXT : GET_INFO, domain);
		one->u.words[0] = vcpu;
		if (pause)
			one->u.longs[1] = (uint64_t)page + 16384 + vcpu * CONTEXT_BYTES;
	}
	for (int i = 0; i < count; i++)
		calls[i] = (struct multicall){ HYPERVISOR_DOMCTL, 0, { (uint64_t)(domctls + i) } };
	int failed = hypercall(HYPERVISOR_MULTICALL, calls, count);
	for (int i = 0; i < count; i++)
		failed |= calls[i].result != 0;
	return failed;
}

static int once(int what, uint16_t domain, int vcpus)
{
	switch (what) {
	case 0: return domctl(PAUSE, domain) || domctl(UNPAUSE, domain);
	case 1: return several(domain, vcpus, 1) || domctl(UNPAUSE, domain);
	default: return several(domain, vcpus, 0);
	}
}

static int processor_time(char **command)
{
	pid_t child = fork();
	if (!child) {
		execvp(*command, command);
		_exit(127);
	}
	int status;
	struct rusage used;
	if (child < 0 || waitpid(child, &status, 0) != child || getrusage(RUSAGE_CHILDREN, &used))
		return 2;
	printf("%ld %ld\n", (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000l
	       + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000l, used.ru_maxrss);
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

static void rest(long us)
{
	struct timespec time = { us / 1000000, us % 1000000 * 1000 };
	nanosleep(&time, 0);
}

/* Maps a page of a domain. */
static char *map(uint16_t domain, uint64_t frame, int access)
{
	int error = 0;
	char *shown = mmap(0, 4096, access, MAP_SHARED, privcmd, 0);
	struct mapbatch call = { 1, domain, (uint64_t)shown, &frame, &error };
	if (shown == MAP_FAILED || ioctl(privcmd, _IOC(_IOC_NONE, 'P', 4, sizeof call), &call) || error)
		return 0;
	return shown;
}

/* The buffer of a processor, which begins with the reader's position and Xen's; none if there is no such processor. */
static volatile uint32_t *trace_buffer(uint64_t info_frame, int cpu)
{
	uint16_t *info = (uint16_t *)map(DOMID_XEN, info_frame, PROT_READ);
	if (!info || !info[1 + cpu])
		return 0;
	uint32_t first = ((uint32_t *)info)[info[1 + cpu]];
	return (uint32_t *)map(DOMID_XEN, first, PROT_READ | PROT_WRITE);
}

static int trace(const char *what)
{
	volatile uint32_t *buffers[MOST_VCPUS];
	uint32_t before[MOST_VCPUS];
	int count = 0, grows = 0;
	if (tbuf(GET_INFO_OF_TRACE, 0, 0))
		return perror("sysctl"), 2;
	struct tbuf_op info = ((struct sysctl *)page)->u.tbuf;
	while (info.frame && count < MOST_VCPUS && (buffers[count] = trace_buffer(info.frame, count)))
		before[count] = buffers[count][1], count++;
	rest(100000);
	for (int cpu = 0; cpu < count; cpu++)
		grows |= buffers[cpu][1] != before[cpu];
	printf("events=%x grows=%d\n", info.events, grows);
	if (!strcmp(what, "on")) {
		tbuf(SET_SIZE, 0, 64);  /* fails if they are there */
		return tbuf(SET_EVENTS, TRC_ALL, 0) || tbuf(ENABLE, 0, 0);
	}
	if (strcmp(what, "off"))
		return 0;
	tbuf(DISABLE, 0, 0);
	for (int cpu = 0; cpu < count; cpu++)
		buffers[cpu][0] = buffers[cpu][1];      /* nobody will read it */
	return 0;
}

static int word(uint16_t domain, uint64_t address, const char *value)
{
	char *shown = map(domain, address >> 12, PROT_READ | PROT_WRITE);
	if (!shown)
		return perror("map"), 2;
	uint64_t *at = (uint64_t *)(shown + address % 4096);
	if (value)
		*at = strtoull(value, 0, 0);
	return printf("%lu\n", *at), 0;
}

static int runs(uint16_t domain)
{
	return !domctl(GET_DOMAIN_INFO, domain) && (uint16_t)page->u.words[0] == domain && !(page->u.words[1] & 0xc);
}

static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

enum { PREAMBLE_BYTES = 32 };             /* of a recording: format-spec.md */
enum { LOOKS_MAX = 5000 };                /* for a freeze, some 100 us apart */
static const int64_t RESUMED_MAX = 2000000000;  /* ns */

static int kill_one(uint16_t domain, long us, const char *after, char **command)
{
	int at_freeze = !strcmp(after, "freeze"), is_file = !at_freeze && strcmp(after, "start");
	struct stat written = { 0 };
	/* Whatever the recorder is in the middle of: else it is only killed where it waits. */
	struct sched_param first = { .sched_priority = 1 };
	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first))
		return perror("sched_setscheduler"), 2;
	pid_t child = fork();
	if (!child) {
		if (freopen("/dev/null", "w", stderr))
			execvp(*command, command);
		_exit(127);
	}
	int ended = 0;
	while (is_file && !(ended = waitpid(child, 0, WNOHANG))
	       && (stat(after, &written) || written.st_size <= PREAMBLE_BYTES))
		rest(2000);
	rest(us);
	for (int look = 0; at_freeze && look < LOOKS_MAX && runs(domain); look++)
		rest(90 + look % 20);
	if (!ended && !kill(child, SIGKILL)) {
		if (!runs(domain))
			puts("frozen");
		waitpid(child, 0, 0);
	}
	/* The guardian waits for a processor like everybody else. */
	int64_t killed = now();
	do
		rest(50000);
	while (!runs(domain) && now() - killed < RESUMED_MAX);
	fprintf(stderr, "%ld\n", (long)((now() - killed) / 1000000));
	return !runs(domain);
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(int64_t *)a, y = *(int64_t *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	if (!strcmp(argv[1], "cpu"))
		return processor_time(argv + 2);
	uint16_t domain = atoi(argv[2]);
	int memory = open("/dev/xen/hypercall", O_RDWR);
	privcmd = open("/dev/xen/privcmd", O_RDWR);
	page = mmap(0, PAGES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (privcmd < 0 || page == MAP_FAILED)
		return perror("privcmd"), 2;
	if (!strcmp(argv[1], "trace"))
		return trace(argv[2]);
	if (!strcmp(argv[1], "word") && argc > 3)
		return word(domain, strtoull(argv[3], 0, 0), argc > 4 ? argv[4] : 0);
	if (!strcmp(argv[1], "flags")) {
		if (domctl(GET_DOMAIN_INFO, domain) || (uint16_t)page->u.words[0] != domain)
			return puts("gone"), 1;
		uint32_t flags = page->u.words[1];
		printf("paused=%u shutdown=%u cpu_ns=%lu\n", flags >> 3 & 1, flags >> 2 & 1,
		       page->u.longs[7]);
		return 0;
	}
	if (!strcmp(argv[1], "vcpus") && argc > 3) {
		if (argc > 4)
			printf("%ld ", now());
		for (int vcpu = 0; vcpu < atoi(argv[3]); vcpu++) {
			fill(page, GET_INFO, domain)->u.words[0] = vcpu;
			if (hypercall(HYPERVISOR_DOMCTL, page, 0))
				return perror("domctl"), 2;
			printf("%lu ", page->u.longs[1]);
		}
		return puts(""), 0;
	}
	if (!strcmp(argv[1], "kill") && argc > 5)
		return kill_one(domain, atol(argv[3]), argv[4], argv + 5);
	if (!strcmp(argv[1], "beat") && argc > 4) {
		int64_t period = 1000000000 / atoi(argv[3]), end = now() + atoi(argv[4]) * 1000000000ll;
		long beats = 0;
		for (int64_t due = now(); due < end; due += period) {
			struct timespec rest = { 0, due - now() };
			if (rest.tv_nsec > 0)
				nanosleep(&rest, 0);
			else
				due = now();
			if (once(0, domain, 1))
				break;
			beats++;
		}
		printf("%ld\n", beats);
		return 0;
	}
	int count = argc > 3 ? atoi(argv[3]) : 100;
	int vcpus = argc > 4 ? atoi(argv[4]) : 1;
	if (vcpus > MOST_VCPUS)
		return 2;
	int64_t *times = calloc(count, sizeof *times);
	for (int what = 0; what < 3; what++) {
		for (int i = 0; i < count; i++) {
			struct timespec pause = { 0, 3000000 + i % 7 * 100000 };
			nanosleep(&pause, 0);
			int64_t start = now();
			if (once(what, domain, vcpus))
				return perror("domctl"), 2;
			times[i] = now() - start;
		}
		qsort(times, count, sizeof *times, compare);
		printf("%ld ", times[count / 2]);
	}
	puts("");
	return 0;
}
