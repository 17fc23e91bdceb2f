/* A program to trace: recursion, a thread, a child, and a system call that fails. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static int leaf(int n) { return n * 3 + 1; }

__attribute__((noinline)) static int walk(int n) { return n < 2 ? leaf(n) : walk(n - 1) + walk(n - 2); }

static void *thread(void *sum) {
  for (int i = 0; i < 10; i++) *(volatile int *)sum += walk(8);
  return NULL;
}

int main(void) {
  pthread_t other;
  int sum = 0;
  if (pthread_create(&other, NULL, thread, &sum)) return 1;
  int own = walk(14);
  pthread_join(other, NULL);
  if (open("/nowhere", O_RDONLY) >= 0) return 1;
  printf("%d\n", own + sum);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    walk(5);
    _exit(0);
  }
  return waitpid(child, NULL, 0) == child ? 0 : 1;
}
