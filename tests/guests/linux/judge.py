"""What is asked of a recording of the Linux guest, under QEMU and Xen: `run` is the program under test, which gives what
it prints for its arguments. Every question is answered by (whether it is right, figures)."""

import re

import printed

# Shares of each program's functions of its time in user code, and of the programs of all of it: see work.c and init.c.
PROGRAMS = {"one": {"one_often": 70, "one_seldom": 30}, "two": {"two_seldom": 20, "two_often": 80}}
WEIGHTS = {"one": 75.3, "two": 24.7}

# What a whole stack of a kernel begins at: entries from a process, and where threads begin.
ROOTS = ("entry_SYSCALL_64", "asm_", "ret_from_fork", "secondary_startup_64", "start_kernel", "error_", "sync_regs",
         "syscall_return_via_sysret", "swapgs_restore_regs_and_return_to_usermode", "common_interrupt_return",
         "native_iret", "native_irq_return_iret", "paranoid_", "__indirect_thunk_start", "entry_SYSRETQ", "xen_", "xenpv_",
         "exc_xen_hypervisor_callback", "hypercall_page", "__startup_xen")


def functions_of(table):
    """Of a kernel's own /proc/kallsyms: {address: names}."""
    functions = {}
    for words in map(str.split, table.splitlines()):
        if len(words) == 3 and len(words[0]) == 16 and words[1] in "tTwW":
            functions.setdefault(int(words[0], 16), set()).add(words[2])
    return functions


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
    is_right = len(inside) >= 50 and told and not wrong and min(whole, rooted) >= 0.95 * len(inside)
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


def programs(run, recording, images, are_named):
    """Whether each program is in one space, named by its own image and by no other, in its true shares. `images` are
    the files of both, by name; if spaces `are_named`, they are called as the guest calls its processes."""
    wrong, worst, homes = [], 0, {}

    def judge(what, part, total, share):
        nonlocal worst
        off = abs(100 * part / max(total, 1) - share)
        worst = max(worst, off)
        # Three standard errors, where samples are too few for 3 points to mean anything.
        if off > max(3, 3 * (share * (100 - share) / max(total, 1)) ** 0.5):
            wrong.append(f"{what} has {part} of {total}, the truth is {share} %")

    spaces = users(run, recording, *(word for image in images.values() for word in ("--elf", image)))
    everything = sum(sum(functions.values()) for functions in spaces.values())
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
        for function, share in truth.items():
            judge(function, own.get(function, 0), work, share)
        judge(name, sum(own.values()), everything, WEIGHTS[name])
    # Of two images given alone, neither names the other's process.
    for name, image in images.items():
        other = next(one for one in PROGRAMS if one != name)
        alone = users(run, recording, "--elf", image)
        strangers = [one for one in alone.get(homes[other], {}) if one in PROGRAMS[name]]
        named = [one for one in alone.get(homes[name], {}) if one in PROGRAMS[name]]
        if strangers or len(named) != len(PROGRAMS[name]):
            wrong.append(f"{image} alone names {named} of its own and {strangers} of the other")
    return not wrong, (f"{everything} samples of two programs' own code, at most {worst:.1f} points off "
                       f"{'; '.join(wrong)}".rstrip())
