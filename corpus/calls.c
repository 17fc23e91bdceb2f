/* Two threads and a child process with a call tree whose shares are known by construction: twice as many
 * steps under `often` as under `seldom`, and a recursion 20 deep. Built with frame pointers. */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static volatile unsigned long sink;

NOINLINE void steps(unsigned long count)
{
	/* A leaf has a frame only if it asks for one. */
	asm volatile("" : : "r"(__builtin_frame_address(0)));
	for (unsigned long i = 0; i < count; i++)
		sink += i * i;
}

NOINLINE void often(void) { steps(200000); sink++; }
NOINLINE void seldom(void) { steps(100000); sink++; }

NOINLINE void deep(int depth)
{
	if (depth > 0)
		deep(depth - 1);
	else
		steps(50000);
	sink++;
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

NOINLINE void *work(void *seconds)
{
	double end = now() + *(double *)seconds;
	while (now() < end) {
		often();
		seldom();
		deep(20);
	}
	return 0;
}

int main(void)
{
	double seconds = 2.0;
	pthread_t thread;
	pid_t child = fork();
	if (child == 0) {
		work(&seconds);
		_exit(0);
	}
	pthread_create(&thread, 0, work, &seconds);
	work(&seconds);
	pthread_join(thread, 0);
	waitpid(child, 0, 0);
	return 0;
}
