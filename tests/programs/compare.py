"""What two recorders saw of one run, and whether uniprof's is as good as perf's.

Rule for shares: a function's own share of the samples outside the kernel may differ from perf's by 3 points, or by
4 standard errors of the difference where there are too few samples for 3 points to mean anything: some three hundred are
judged. The kernel's share is shown, not judged: perf's events follow each thread, and cost their part of every switch.
Rule for whole stacks and for named functions: at most 1 point fewer than perf, and 3 standard errors of the difference.
"""

import collections
import statistics

LARGEST = 12
SHARE_POINTS, SHARE_ERRORS = 3.0, 4.0
RATE_POINTS, RATE_ERRORS = 1.0, 3.0
LEAST_SAMPLES, STRETCHES = 300, 10
# Samples of a function that perf should have, for it to be one that perf can't name.
EXPECTED = 5
# Most samples fewer than perf's, as a share of them or in standard errors of the difference.
MISSING, COUNT_ERRORS = 0.05, 4.0

Row = collections.namedtuple("Row", "program recorder samples shares whole named truth bytes faults")


def error(rate, count):
    """Standard error of a rate, in points; samples are close to independent where programs do rounds of
    milliseconds."""
    return 100 * (max(rate * (1 - rate), 0.25 / max(count, 1)) / max(count, 1)) ** 0.5


def both(a, count_a, b, count_b):
    return (error(a, count_a) ** 2 + error(b, count_b) ** 2) ** 0.5


def spread(ours, perf, place):
    """Standard error, in points, of the difference of two shares, by stretches of time: samples near each other are
    no independent witnesses where a program goes round in step with them."""
    times = [sample.seconds for sample in perf.timed]
    first, last = min(times), max(times)
    edges = [first + (last - first) * at / STRETCHES for at in range(STRETCHES)]
    pairs = zip(ours.shares_by_time(place, edges), perf.shares_by_time(place, edges))
    return 100 * statistics.stdev(a - b for a, b in pairs) / STRETCHES ** 0.5


def largest(profile):
    return [place for place, _ in profile.leaves.most_common(LARGEST)]


def as_named_by(perf, ours):
    """Our shares, where perf has no name for code that we name: counted with the unnamed of the image, as far as
    perf has so much there. What perf names and we don't stays a difference."""
    named = {module for (module, known), count in perf.leaves.items() if known is not None and count}
    share = {place: ours.share(place) for place in ours.leaves}
    due = {place: count * perf.own / max(ours.own, 1) for place, count in ours.leaves.items()}
    for place in [place for place in ours.leaves if place[1] is not None and not perf.leaves[place]]:
        unnamed = place[0], None
        free = perf.share(unnamed) - share.get(unnamed, 0.0)
        if (due[place] >= EXPECTED or place[0] not in named) and free > 0:
            moved = min(share[place], free)
            share[place] -= moved
            share[unnamed] = share.get(unnamed, 0.0) + moved
    return share


def shares(ours, perf, tell):
    """The largest difference of a share in points, and the faults."""
    worst, faults, share = 0.0, [], as_named_by(perf, ours)
    tell(f"    {100 * ours.kernel:5.1f} {100 * perf.kernel:5.1f}  of all in the kernel")
    for place in dict.fromkeys(largest(perf) + largest(ours)):
        a, b = share.get(place, 0.0), perf.share(place)
        points, name = 100 * abs(a - b), ours.name(place) or perf.name(place)
        worst = max(worst, points)
        mark = "" if points <= SHARE_POINTS or points <= SHARE_ERRORS * max(
            both(a, ours.own, b, perf.own), spread(ours, perf, place)) else "  <<<"
        other = perf.name(place)
        alias = f" (perf: {other})" if other not in (None, name) else ""
        tell(f"    {100 * ours.share(place):5.1f} {100 * b:5.1f}  {name}{alias} ({place[0]}){mark}")
        if mark:
            faults.append(f"{name} has {100 * a:.1f} %, perf says {100 * b:.1f} %")
    return worst, faults


def amount(ours, perf, log):
    """Whether there are fewer samples than perf took of the same threads in the same time."""
    if ours.count < LEAST_SAMPLES:
        return [f"only {ours.count} samples: {log.strip()[-300:]}"]
    missing = perf.count - ours.count
    if missing > max(perf.count * MISSING, COUNT_ERRORS * (perf.count + ours.count) ** 0.5):
        return [f"{ours.count} samples, perf has {perf.count}"]
    return []


def rate(what, a, count_a, b, count_b):
    allowed = RATE_POINTS + RATE_ERRORS * both(a, count_a, b, count_b)
    if 100 * (b - a) > allowed:
        return [f"{what}: {100 * a:.1f} %, perf {100 * b:.1f} %"]
    return []


def fraction(part, count):
    return part / count if count else 0.0


def truth(profile, told):
    """The largest distance in points from the shares that the program told of itself, of the samples that have
    one of its functions in them; and the faults."""
    if not told:
        return None, []
    found = {name: profile.holding(name) for name in told}
    total = sum(found.values())
    spent = sum(told.values())
    if total == 0:
        return 100.0, [f"none of {', '.join(told)} was seen"]
    worst, faults = 0.0, []
    for name, seconds in told.items():
        share, true = found[name] / total, seconds / spent
        points = 100 * abs(share - true)
        worst = max(worst, points)
        if points > max(SHARE_POINTS, SHARE_ERRORS * error(true, total)):
            faults.append(f"{name} has {100 * share:.1f} %, the program says {100 * true:.1f} %")
    return worst, faults


def invented(profile, told):
    """Callers that there never were: none of a program's own functions, nor what calls them, is in a stack twice."""
    twice = profile.repeated(("outer", "main.main", *told)) if told else 0
    return [f"{twice} of {profile.count} stacks have a function twice that doesn't call itself"] if twice else []
