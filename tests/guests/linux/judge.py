"""What is asked of a recording of the Linux guest, under QEMU and Xen: `run` is the program under test, which gives what
it prints for its arguments. Every question is answered by (whether it is right, figures)."""

import re
import statistics

from margin import error, margin
import printed

# Shares in per cent of each program's functions of its work, and of the programs of all of it: see work.c, Makefile.
PROGRAMS = {"one": {"one_often": 70, "one_seldom": 30}, "two": {"two_seldom": 20, "two_often": 80}}
WEIGHTS = {"one": 60, "two": 40}
STRETCHES, LEAST_SAMPLES = 12, 300

# What a whole stack of a kernel begins at: entries from a process, and where threads begin.
ROOTS = ("entry_SYSCALL_64", "asm_", "ret_from_fork", "secondary_startup_64", "start_kernel", "error_", "sync_regs",
         "syscall_return_via_sysret", "swapgs_restore_regs_and_return_to_usermode", "common_interrupt_return",
         "native_iret", "native_irq_return_iret", "paranoid_", "__indirect_thunk_start", "entry_SYSRETQ", "xen_", "xenpv_",
         "exc_xen_hypervisor_callback", "hypercall_page", "__startup_xen",
         # On arm64; the last two are where the stack of a process is taken and left.
         "el0t_64_", "__primary_switched", "vectors", "ret_to_user")


def functions_of(table):
    """Of a kernel's own /proc/kallsyms: {address: names}."""
    functions = {}
    for words in map(str.split, table.splitlines()):
        if len(words) == 3 and len(words[0]) == 16 and words[1] in "tTwW":
            functions.setdefault(int(words[0], 16), set()).add(words[2])
    return functions


def moved(run, recording, table):
    """The same kernel's `table` where it was moved to in a recording: all of it by as much as its first function that has
    a name of its own. Returns it, and by how many bytes it was moved."""
    rows = [words for words in map(str.split, table.splitlines()) if len(words) == 3]
    homes = {}
    for address, _, name in rows:
        homes[name] = None if name in homes else int(address, 16)
    told = re.findall(r'^symbol address=([0-9a-f]+) .*name="([^"]*)"', run("dump", recording), re.M)
    far = next((int(address, 16) - homes[name] for address, name in told if homes.get(name)), 0)
    return "\n".join(f"{int(address, 16) + far:016x} {kind} {name}" for address, kind, name in rows), far


def folded(run, recording, *selection):
    """Stacks as ((space, frames...), count)."""
    return printed.stacks(run("export", "-f", "folded", "--no-search", "--processes", "apart", "--marks", *selection,
                              recording))


def kernel(run, recording, table):
    """Whether the kernel has its own names, and whole stacks."""
    truth = functions_of(table)
    dump = run("dump", recording)
    inside = [row for row in printed.samples(dump) if row["state"] == "running" and row["chain"].startswith("ffff")]
    whole = sum(row["stop"] == "complete" for row in inside)
    told = re.findall(r'^symbol address=([0-9a-f]+) .*name="([^"]*)"', dump, re.M)
    wrong = [name for address, name in told if name not in truth.get(int(address, 16), ())]
    stacks = [(stack, count) for stack, count in folded(run, recording) if stack[-1].endswith("_[k]")]
    rooted = sum(count for stack, count in stacks if stack[1].startswith(ROOTS))
    strange = sorted({stack[1] for stack, _ in stacks if not stack[1].startswith(ROOTS)})
    # The two programs hardly ask the kernel: about one sample in a hundred is there.
    is_right = len(inside) >= 25 and told and not wrong and min(whole, rooted) >= 0.95 * len(inside)
    return is_right, (f"{whole} of {len(inside)} stacks in the kernel are whole, {rooted} begin at an entry or a thread's "
                      f"start {strange[:5] or ''}; {len(told)} functions, {len(wrong)} not as the kernel calls them "
                      f"{wrong[:3] or ''}")


def kernel_by_image(run, recording, table, image):
    """Whether a recording whose recorder knew nothing of the kernel has its names and whole stacks by its `image`. Of a
    handler on a stack of its own only that one was recorded."""
    roots = (*ROOTS, "sysvec_", "common_interrupt", "__common_interrupt")
    truth = {name for names in functions_of(table).values() for name in names}
    stacks = [(stack, count) for stack, count in folded(run, recording, "--elf", image) if stack[-1].endswith("_[k]")]
    inside = sum(count for _, count in stacks)
    rooted = sum(count for stack, count in stacks if stack[1].startswith(roots))
    frames = {frame.removesuffix("_[k]") for stack, _ in stacks for frame in stack if frame.endswith("_[k]")}
    named = {frame for frame in frames if not frame.startswith("0x")}
    strange = sorted({stack[1] for stack, _ in stacks if not stack[1].startswith(roots)} | named - truth)
    is_right = inside >= 50 and rooted >= 0.95 * inside and named <= truth
    return is_right, (f"by its file, {rooted} of {inside} stacks in the kernel begin at an entry, a handler or a thread's "
                      f"start, {len(named & truth)} of {len(named)} functions are the kernel's {strange[:5] or ''}")


def users(run, recording, *selection):
    """Samples of user code by address space: {space: {function: samples}}."""
    found = {}
    for (space, *frames), count in folded(run, recording, *selection):
        if frames and not frames[-1].endswith("_[k]"):
            functions = found.setdefault(space, {})
            functions[frames[-1]] = functions.get(frames[-1], 0) + count
    return found


def shares_of(spaces):
    """Of samples of user code by address space: {program or function: its share in per cent} of what is work."""
    work = {name: {function: sum(functions.get(function, 0) for functions in spaces.values()) for function in truth}
            for name, truth in PROGRAMS.items()}
    counts = {name: sum(functions.values()) for name, functions in work.items()}
    shares = {name: 100 * count / max(sum(counts.values()), 1) for name, count in counts.items()}
    return shares | {function: 100 * count / max(counts[name], 1)
                     for name, functions in work.items() for function, count in functions.items()}


def programs(run, recording, images, are_named):
    """Whether each program is in one space, named by its own image and by no other, in its true shares. `images` are
    the files of both, by name; if spaces `are_named`, they are called as the guest calls its processes."""
    wrong, homes = [], {}
    by_image = [word for image in images.values() for word in ("--elf", image)]
    spaces = users(run, recording, *by_image)
    for name, truth in PROGRAMS.items():
        home = [space for space, functions in spaces.items() if any(one in functions for one in truth)]
        if len(home) != 1 or home[0] in homes.values():
            return False, f"program {name} is in {home}: {spaces}"
        homes[name] = home[0]
        own = spaces[home[0]]
        work = sum(own.get(one, 0) for one in truth)
        foreign = sum(own.values()) - work - own.get("copy", 0)
        if work < 50 or foreign > 0.05 * work:
            wrong.append(f"{name}: {own}")
        if are_named and not re.fullmatch(rf"{name} \(\d+\)", home[0]):
            wrong.append(f"{name} is called {home[0]}")

    # Samples near each other are no independent witnesses, least of all on a busy host: how far off shares may be by
    # chance is told by how they differ from one stretch of time to the next.
    seconds = float(re.search(r"^length +([\d.]+) s", run("info", recording), re.M)[1])
    stretches = [shares_of(users(run, recording, *by_image, "--from", f"{seconds * one / STRETCHES}s",
                                 "--to", f"{seconds * (one + 1) / STRETCHES}s")) for one in range(STRETCHES)]
    shares = shares_of(spaces)
    errors = {what: statistics.stdev(stretch[what] for stretch in stretches) / STRETCHES ** 0.5 for what in shares}
    everything = sum(sum(functions.values()) for functions in spaces.values())
    truths = WEIGHTS | PROGRAMS["one"] | PROGRAMS["two"]
    for what, truth in truths.items():
        home = next((name for name, functions in PROGRAMS.items() if what in functions), None)
        errors[what] = max(errors[what], error(truth, everything * WEIGHTS.get(home, 100) / 100))
        if abs(shares[what] - truth) > margin(errors[what]):
            wrong.append(f"{what} has {shares[what]:.1f} ± {errors[what]:.1f} %, the truth is {truth} %")
    if everything < LEAST_SAMPLES:  # a busy machine takes fewer than were asked for, and the margins know it
        wrong.append(f"only {everything} samples")
    # Of two images given alone, neither names the other's process.
    for name, image in images.items():
        other = next(one for one in PROGRAMS if one != name)
        alone = users(run, recording, "--elf", image)
        strangers = [one for one in alone.get(homes[other], {}) if one in PROGRAMS[name]]
        named = [one for one in alone.get(homes[name], {}) if one in PROGRAMS[name]]
        if strangers or len(named) != len(PROGRAMS[name]):
            wrong.append(f"{image} alone names {named} of its own and {strangers} of the other")
    off = max(abs(shares[what] - truth) for what, truth in truths.items())
    return not wrong, (f"{everything} samples of two programs' own code, at most {off:.1f} points off "
                       f"(standard error {max(errors.values()):.1f}) {'; '.join(wrong)}".rstrip())


def boot(run, recording, console):
    """Whether a boot has names of the kernel and of its first processes, and samples stand for no more time of the
    kernel's initcalls than its own account, by 5 % and three standard errors. For less they may: the kernel's clock runs on
    while its vCPU waits for a processor, and behind a stub in a part of each pause."""
    stacks = folded(run, recording)
    in_kernel = [(stack, count) for stack, count in stacks if stack[-1].endswith("_[k]")]
    whole = sum(count for _, count in in_kernel)
    named = sum(count for stack, count in in_kernel if not re.match(r"(\[kernel\]|0x)", stack[-1]))
    roots = {re.split("[ /]", stack[0])[0] for stack, _ in in_kernel}
    # By a real clock, which there is at first not. What waits for others takes longer by it than by samples.
    later = console.split("Switched to clocksource", 1)[-1]
    took = dict(re.findall(r"initcall (\w+)\+\S+ returned \S+ after (\d+) usecs", later))
    names = [name for name in ("inet_init", "cubictcp_register", "inet6_init", "cmos_init") if name in took]
    by_clock = sum(int(took[name]) for name in names) / 1e3
    inside = [count / 1e3 for stack, count in stacks if any(f"{name}_[k]" in stack for name in names)]
    by_samples, count = sum(inside), len(inside)
    few = 3 * by_samples / max(count, 1) ** 0.5  # of so many stacks or more samples
    right = named >= 0.98 * whole > 0 and {"swapper", "init"} <= roots and len(names) > 2 and count > 2
    return right and 0.3 * by_clock - few <= by_samples <= 1.05 * by_clock + few, (
        f"{100 * named / max(whole, 1):.1f} % of {whole / 1e3:.0f} ms in the kernel have names; processes "
        f"{', '.join(sorted(roots))}; {', '.join(names)}: {by_clock:.0f} ms by the kernel's clock, {by_samples:.0f} by "
        f"samples of {count} stacks")
