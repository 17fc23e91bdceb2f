/* A second opinion on a domain, by plain privcmd calls and nothing of uniprof's:
 *   probe flags DOMID      paused=0|1 shutdown=0|1 cpu_ns=N, from getdomaininfo
 *   probe pause DOMID N    median, in ns, of N bare pause + unpause pairs
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
enum { PAUSE = 3, UNPAUSE = 4, GET_DOMAIN_INFO = 5, INTERFACE_4_17 = 0x15, HYPERVISOR_DOMCTL = 36 };

static int privcmd;
static struct domctl *page;

static int domctl(uint32_t cmd, uint16_t domain)
{
	struct hypercall call = { HYPERVISOR_DOMCTL, { (uint64_t)page } };
	memset(page, 0, sizeof *page);
	page->cmd = cmd;
	page->version = INTERFACE_4_17;
	page->domain = domain;
	return ioctl(privcmd, _IOC(_IOC_NONE, 'P', 0, sizeof call), &call);
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
	page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
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
	for (int i = 0; i < count; i++) {
		struct timespec pause = { 0, 3000000 + i % 7 * 100000 };
		nanosleep(&pause, 0);
		int64_t start = now();
		if (domctl(PAUSE, domain) || domctl(UNPAUSE, domain))
			return perror("domctl"), 2;
		times[i] = now() - start;
	}
	qsort(times, count, sizeof *times, compare);
	printf("%ld\n", times[count / 2]);
	return 0;
}
