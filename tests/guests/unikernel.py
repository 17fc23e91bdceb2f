"""What is asked of a recording of the test unikernel, under QEMU and KVM. What is wrong is an AssertionError."""

import statistics

# Shares in per cent, as tests/guests/README.md has them.
TRUTH = [(50, 30, 20), (70, 20, 10), (20, 20, 60), (10, 80, 10)]
FUNCTIONS = ("alpha", "beta", "gamma")
BLOCKS = 10


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def shares(uniprof, recording, seconds, *selection):
    """Number of samples, the share of each function, and its standard error by ten stretches of
    time: samples near each other are no independent witnesses, least of all on a busy host."""
    def measure(*more):
        stacks = uniprof.folded(recording, *selection, *more)
        total = sum(count for _, count in stacks)
        return total, [100 * sum(count for stack, count in stacks if name in stack) / (total or 1)
                       for name in FUNCTIONS]

    blocks = [measure("--from", f"{seconds * block / BLOCKS}s",
                      "--to", f"{seconds * (block + 1) / BLOCKS}s") for block in range(BLOCKS)]
    errors = [statistics.stdev(column) / BLOCKS ** 0.5
              for column in zip(*(found for total, found in blocks))]
    return *measure(), errors


def check_shares(uniprof, recording, vcpus, seconds, *selection):
    """Every share within 3 points of the truth, or within 4 standard errors where there are too few samples for 3 points
    to mean anything: a run judges nearly a hundred so, of which one is 3 of them off by chance in one run of six. What
    all vCPUs have in common, their mean for each function, is held to 3."""
    worst = largest_error = counted = 0
    off = {name: [] for name in FUNCTIONS}
    for vcpu in range(vcpus):
        total, found, errors = shares(uniprof, recording, seconds, "--vcpu", vcpu, *selection)
        check(total > 0, f"there are no samples of vCPU {vcpu}")
        counted += total
        for name, share, truth, error in zip(FUNCTIONS, found, TRUTH[vcpu], errors):
            if total < 1000:
                # Stretches of few samples are alike by chance: it is that of independent ones at least.
                error = max(error, (truth * (100 - truth) / total) ** 0.5)
            worst, largest_error = max(worst, abs(share - truth)), max(largest_error, error)
            off[name].append((share - truth, error))
            check(abs(share - truth) <= max(3, 4 * error),
                  f"vCPU {vcpu}: {name} has {share:.1f} ± {error:.1f} %, the truth is {truth} %")
    for name, each in off.items():
        mean = statistics.fmean(share for share, _ in each)
        error = sum(error ** 2 for _, error in each) ** 0.5 / vcpus
        check(vcpus == 1 or abs(mean) <= max(3, 3 * error),
              f"{name} has {mean:+.1f} ± {error:.1f} points, over all vCPUs")
    return f"{counted} samples, at most {worst:.1f} points off (standard error {largest_error:.1f})"


def check_complete(uniprof, recording, *roots, cut=0):
    """Every stack of a recording begins at a root, but for `cut` of them at the most."""
    stacks = uniprof.folded(recording)
    broken = sum(count for stack, count in stacks if stack[0] not in roots)
    check(broken <= cut, f"{broken} stacks don't begin at {' or '.join(roots)}")
