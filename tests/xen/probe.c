/* A second opinion on a domain, by plain privcmd calls and nothing of uniprof's:
 *   probe flags DOMID      paused=0|1 shutdown=0|1 cpu_ns=N, from getdomaininfo
 *   probe pause DOMID N    medians, in ns, of N pairs of bare pause + unpause, and of N of
 *                          [pause, getvcpucontext of vCPU 0] in one multicall + unpause: what it takes
 *                          to fetch registers at all
 * Layouts: xen/include/public/domctl.h; Linux, include/uapi/xen/privcmd.h. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

struct domctl {
	uint32_t cmd, version;
	uint16_t domain, pad[3];
	union { uint32_t words[32]; uint64_t longs[16]; } u;
};
struct hypercall { uint64_t op, arg[5]; };
struct multicall { uint64_t op, result, arg[6]; };
enum { PAUSE = 3, UNPAUSE = 4, GET_DOMAIN_INFO = 5, GET_CONTEXT = 13, INTERFACE_4_17 = 0x15 };
enum { HYPERVISOR_MULTICALL = 13, HYPERVISOR_DOMCTL = 36 };

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

static int pause_and_fetch(uint16_t domain)
{
	struct multicall *calls = (struct multicall *)((char *)page + 4096);
	struct domctl *context = fill(page + 2, GET_CONTEXT, domain);
	context->u.longs[1] = (uint64_t)page + 8192;
	calls[0] = (struct multicall){ HYPERVISOR_DOMCTL, 0, { (uint64_t)fill(page + 1, PAUSE, domain) } };
	calls[1] = (struct multicall){ HYPERVISOR_DOMCTL, 0, { (uint64_t)context } };
	return hypercall(HYPERVISOR_MULTICALL, calls, 2) || calls[0].result || calls[1].result;
}

static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
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
	uint16_t domain = atoi(argv[2]);
	int memory = open("/dev/xen/hypercall", O_RDWR);
	privcmd = open("/dev/xen/privcmd", O_RDWR);
	page = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (privcmd < 0 || page == MAP_FAILED)
		return perror("privcmd"), 2;
	if (!strcmp(argv[1], "flags")) {
		if (domctl(GET_DOMAIN_INFO, domain) || (uint16_t)page->u.words[0] != domain)
			return puts("gone"), 1;
		uint32_t flags = page->u.words[1];
		printf("paused=%u shutdown=%u cpu_ns=%lu\n", flags >> 3 & 1, flags >> 2 & 1,
		       page->u.longs[7]);
		return 0;
	}
	int count = argc > 3 ? atoi(argv[3]) : 100;
	int64_t *times = calloc(count, sizeof *times);
	for (int fetch = 0; fetch < 2; fetch++) {
		for (int i = 0; i < count; i++) {
			struct timespec pause = { 0, 3000000 + i % 7 * 100000 };
			nanosleep(&pause, 0);
			int64_t start = now();
			if ((fetch ? pause_and_fetch(domain) : domctl(PAUSE, domain)) || domctl(UNPAUSE, domain))
				return perror("domctl"), 2;
			times[i] = now() - start;
		}
		qsort(times, count, sizeof *times, compare);
		printf("%ld ", times[count / 2]);
	}
	puts("");
	return 0;
}
