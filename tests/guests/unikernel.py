"""What is asked of a recording of the test unikernel, under QEMU and KVM. What is wrong is an AssertionError."""

import functools
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import edges
import printed
from margin import error, margin, spread

# Shares in per cent, as tests/guests/README.md has them.
TRUTH = [(50, 30, 20), (70, 20, 10), (20, 20, 60), (10, 80, 10)]
FUNCTIONS = ("alpha", "beta", "gamma")
# What interrupts enter: on a busy host the next one is there when the one before has ended, or before that.
INTERRUPTS = ("vectors", "agent_entry", "agent_timer", "timer_entry", "event_entry")
STRETCHES = 10


def check(condition, text):
    if not condition:
        raise AssertionError(text)


@functools.cache
def weight(uniprof, recording):
    """What a sample counts as in stacks, in the mean."""
    weights = [printed.weight(sample) for sample in uniprof.samples(recording)]
    return statistics.fmean(weights) if weights else 1


def measure(uniprof, recording, *selection):
    """Number of samples, about, and the share of each function."""
    stacks = uniprof.folded(recording, *selection)
    total = sum(count for _, count in stacks)
    return round(total / weight(uniprof, recording)), [100 * sum(count for stack, count in stacks if name in stack) / (total or 1) for name in FUNCTIONS]


def stretches(uniprof, recording, seconds, *selection):
    """The same of each tenth of the time."""
    return [measure(uniprof, recording, *selection, "--from", f"{seconds * one / STRETCHES}s",
                    "--to", f"{seconds * (one + 1) / STRETCHES}s") for one in range(STRETCHES)]


def shares(uniprof, recording, seconds, *selection, truth=None):
    """Number of samples, the share of each function, and its standard error: that of the true share, if it is known, as a
    share that is too small by chance would seem to be certain."""
    total, found = measure(uniprof, recording, *selection)
    clumped = spread(found, stretches(uniprof, recording, seconds, *selection))
    return total, found, [clumped * error(share, total) for share in truth or found]


def check_shares(uniprof, recording, vcpus, seconds, *selection):
    """Every share is within its margin of the truth, and so is what all vCPUs have in common, their mean for each
    function."""
    worst = largest_error = counted = 0
    off = {name: [] for name in FUNCTIONS}
    for vcpu in range(vcpus):
        total, found, errors = shares(uniprof, recording, seconds, "--vcpu", vcpu, *selection, truth=TRUTH[vcpu])
        check(total > 0, f"there are no samples of vCPU {vcpu}")
        counted += total
        for name, share, truth, of_share in zip(FUNCTIONS, found, TRUTH[vcpu], errors):
            worst, largest_error = max(worst, abs(share - truth)), max(largest_error, of_share)
            off[name].append((share - truth, of_share))
            if abs(share - truth) > margin(of_share):
                # A guest that stood in one place meanwhile, whose samples are all of that place, is seen by its tenths.
                tenths = "; ".join(f"{count}: {' '.join(f'{one:.0f}' for one in each)}" for count, each
                                   in stretches(uniprof, recording, seconds, "--vcpu", vcpu, *selection))
                raise AssertionError(f"vCPU {vcpu}: {name} has {share:.1f} ± {of_share:.1f} %, the truth is {truth} %; "
                                     f"of {total} samples, by tenths of the time: {tenths}")
    for name, each in off.items():
        mean = statistics.fmean(share for share, _ in each)
        of_mean = sum(of_share ** 2 for _, of_share in each) ** 0.5 / vcpus
        check(abs(mean) <= margin(of_mean), f"{name} has {mean:+.1f} ± {of_mean:.1f} points, over all vCPUs")
    check_edges(uniprof, recording, *selection)
    return f"{counted} samples, at most {worst:.1f} points off (standard error {largest_error:.1f})"


def check_edges(uniprof, recording, *selection):
    """No caller in its stacks is one that the guest's code doesn't have."""
    said = []
    # By name, as the recording may have been made elsewhere.
    images = (pathlib.Path(__file__).resolve().parent.parent / "out/guests").glob("*.elf")
    text = uniprof.run("export", "-f", "perf-script", "--no-demangle", *selection, recording)[1]
    found = edges.judge(text.splitlines(), images, said.append, INTERRUPTS)
    check(found.proven > 0 and found.wrong == 0, f"{found}: {'; '.join(said)}")


def check_complete(uniprof, recording, *roots, cut=0):
    """Every stack of a recording begins at a root, but for `cut` of them at the most."""
    stacks = uniprof.folded(recording)
    cut *= max(map(printed.weight, uniprof.samples(recording)), default=1)
    broken = sum(count for stack, count in stacks if stack[0] not in roots)
    check(broken <= cut, f"{broken} stacks don't begin at {' or '.join(roots)}")
