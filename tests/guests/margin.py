"""How far a share of a guest's samples may be from the truth, in points."""

# Where so many points are few standard errors, it is these that count: a run of all tests judges hundreds of shares, of
# which 3 standard errors would find one off by chance in every other run.
POINTS, ERRORS = 3, 4


def error(share, count):
    """The standard error of a share of so many independent samples."""
    return (share * (100 - share) / max(count, 1)) ** 0.5


def margin(*errors):
    """Of a share with this standard error; of the difference of two shares with theirs."""
    return max(POINTS, ERRORS * sum(one ** 2 for one in errors) ** 0.5)


def spread(found, stretches):
    """How many times as far shares are spread over stretches of time as those of independent samples would be, at least
    1: samples near each other are no independent witnesses, least of all on a busy host. Of `stretches`, each is its
    number of samples and its shares; `found` are the shares of them all."""
    squares = [(one - mean) ** 2 / error(mean, count) ** 2 for count, shares in stretches
               for one, mean in zip(shares, found) if count and 0 < mean < 100]
    return max(1, (sum(squares) / max(len(squares) - len(found), 1)) ** 0.5)
