# Work for an interpreter: recursion, vectors, sorting, matrices. It goes on until it is ended. Calls are few deep: each
# takes kilobytes of stack, and the kernel copies no more than 64.
tree <- function(n) if (n < 2) 1 else tree(n - 1) + tree(n - 2)

sums <- function(n) {
  total <- 0
  for (i in seq_len(n)) total <- total + i %% 7
  total
}

spread <- function(x) sqrt(sum((x - mean(x))^2) / (length(x) - 1))

repeat {
  for (i in 1:20) tree(6)
  sums(20000)
  sort(as.character((0:4999 * 7919) %% 10007))
  m <- matrix((1:14400 * 7919) %% 101, 120)
  m %*% m
  spread(m)
}
