/* What the agent's guest is on Xen: the timer, the time-stamp counter's frequency, and the four things that a
 * vchan's server needs: entries of the grant table, an event channel, events, keys of xenstore. */
#include "agent.h"
#include "uniprof_vchan.h"
#include "xen_abi.h"

#define RING_PAGES 4
#define PATH "data/uniprof/"            /* below this domain's own */

extern struct shared_info shared;
extern struct start_info *start_info;
static struct uniprof_vchan vchan;
static u8 pages[1 + RING_PAGES][UNIPROF_VCHAN_PAGE] __attribute__((aligned(UNIPROF_VCHAN_PAGE)));
static char grant_page[4096] __attribute__((aligned(4096)));
static u32 timer_ports[MAX_VCPUS];
const struct uniprof_stream vchan_stream = { uniprof_vchan_read, uniprof_vchan_write, &vchan };

u64 xen_clock_hz(void)
{
	u32 a = XEN_CPUID_TIME, b, c = 0, d;
	if (platform == XEN_PV)         /* the processor's own answer would be another */
		asm volatile("ud2; .ascii \"xen\"; cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	else
		asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return c * 1000ul;
}

/* ---- the timer: an event channel of each vCPU's own */

/* Each vCPU is on a stack of its own, which a PVH guest has at several places, a multiple of 1 GiB apart. */
static u32 this_vcpu(void)
{
	u64 here = (u64)__builtin_frame_address(0) & ((1 << 30) - 1);
	return (here - (u64)stacks) / STACK_BYTES;
}

void xen_start_timer(void)
{
	u64 vcpu = this_vcpu(), period = 1000000000 / TIMER_HZ;
	struct evtchn_bind_virq bind = { .virq = VIRQ_TIMER, .vcpu = vcpu };
	if (platform == XEN_PV)
		hypercall(HYPERVISOR_set_callbacks, (u64)event_entry, (u64)failsafe_entry, 0);
	long error = hypercall(HYPERVISOR_event_channel_op, EVTCHNOP_bind_virq, (u64)&bind, 0);
	if (error)
		fault(0x71e5, -error);
	u64 bit = 1ul << bind.port % 64;
	timer_ports[vcpu] = bind.port;
	__atomic_fetch_and(&shared.evtchn_mask[bind.port / 64], ~bit, __ATOMIC_SEQ_CST);
	/* One that came before would never be told again. */
	__atomic_fetch_and(&shared.evtchn_pending[bind.port / 64], ~bit, __ATOMIC_SEQ_CST);
	__atomic_store_n(&shared.vcpu_info[vcpu].upcall_mask, 0, __ATOMIC_SEQ_CST);
	hypercall(HYPERVISOR_vcpu_op, VCPUOP_set_periodic_timer, vcpu, (u64)&period);
}

void xen_events(const struct uniprof_registers *interrupted)
{
	u32 number = this_vcpu(), port = timer_ports[number];
	volatile struct vcpu_info *vcpu = &shared.vcpu_info[number];
	u64 bit = 1ul << port % 64;
	do {
		vcpu->upcall_mask = 1;
		vcpu->upcall_pending = 0;
		vcpu->pending_sel = 0;
		if (__atomic_fetch_and(&shared.evtchn_pending[port / 64], ~bit, __ATOMIC_SEQ_CST) & bit)
			agent_interrupt(number, interrupted);
		vcpu->upcall_mask = 0;
	} while (vcpu->upcall_pending);
}

/* interrupted: its rbp, rip, cs, flags, rsp, ss. */
void pv_events(const u64 *interrupted)
{
	const struct uniprof_registers registers = {
		.ip = interrupted[1], .sp = interrupted[4], .fp = interrupted[0],
	};
	xen_events(&registers);
}

/* A PVH guest has Xen's page of events where it asks for it, and an interrupt without an acknowledgement. */
static void pvh_start_events(void)
{
	struct xen_add_to_physmap add = { DOMID_SELF, 0, XENMAPSPACE_shared_info, 0, (u64)&shared >> 12 };
	struct hvm_param callback = { DOMID_SELF, 0, HVM_PARAM_CALLBACK_IRQ, 2ul << 56 | AGENT_VECTOR };
	long error = hypercall(HYPERVISOR_memory_op, XENMEM_add_to_physmap, (u64)&add, 0);
	error = error ? error : hypercall(HYPERVISOR_hvm_op, HVMOP_set_param, (u64)&callback, 0);
	if (error)
		fault(0xe7e, -error);
}

/* ---- xenstore: a question, and its answer is waited for */

static volatile struct xenstore_ring *store;
static u32 store_port;

static void store_move(char *bytes, u32 count, int is_request)
{
	volatile u32 *ours = is_request ? &store->req_prod : &store->rsp_cons;
	volatile u32 *theirs = is_request ? &store->req_cons : &store->rsp_prod;
	for (u32 i = 0; i < count; i++) {
		while (is_request ? *ours - *theirs >= sizeof store->req : *ours == *theirs)
			hypercall(HYPERVISOR_sched_op, SCHEDOP_yield, 0, 0);
		u32 at = *ours & (sizeof store->req - 1);
		if (is_request)
			store->req[at] = bytes[i];
		else
			bytes[i] = store->rsp[at];
		__atomic_store_n(ours, *ours + 1, __ATOMIC_SEQ_CST);
	}
	hypercall(HYPERVISOR_event_channel_op, EVTCHNOP_send, (u64)&store_port, 0);
}

/* Asks about a path; the answer is 0, and its first 63 bytes. */
static int store_ask(u32 type, const char *path, const char *value, u32 bytes, char answer[64])
{
	u32 length = 0;
	while (path[length++])
		;
	struct xsd_sockmsg head = { .type = type, .len = length + bytes };
	store_move((char *)&head, sizeof head, 1);
	store_move((char *)path, length, 1);
	store_move((char *)value, bytes, 1);
	store_move((char *)&head, sizeof head, 0);
	for (u32 i = 0; i < head.len; i++) {
		char byte;
		store_move(&byte, 1, 0);
		if (i < 63)
			answer[i] = byte, answer[i + 1] = 0;
	}
	return head.type == XS_ERROR ? -1 : 0;
}

static u32 number_of(const char *text)
{
	u32 number = 0;
	while (*text >= '0' && *text <= '9')
		number = number * 10 + *text++ - '0';
	return number;
}

/* Returns the length of all, without the zero behind it. */
static u32 append(char *text, u32 at, const char *more)
{
	while (*more)
		text[at++] = *more++;
	text[at] = 0;
	return at;
}

static u32 append_number(char *text, u32 at, u32 number)
{
	char digits[11], *from = digits + 10;
	*from = 0;
	do
		*--from = '0' + number % 10;
	while (number /= 10);
	return append(text, at, from);
}

/* ---- what a vchan's server needs */

static struct grant_entry *grant_table(void)
{
	static struct grant_entry *table;
	u64 machine;
	if (table)
		return table;
	if (platform == XEN_PV) {
		struct gnttab_setup_table setup = { .dom = DOMID_SELF, .nr_frames = 1, .frame_list = &machine };
		hypercall(HYPERVISOR_grant_table_op, GNTTABOP_setup_table, (u64)&setup, 1);
		pv_map(grant_page, machine << 12);
	} else {
		struct xen_add_to_physmap add = { DOMID_SELF, 0, XENMAPSPACE_grant_table, 0, (u64)grant_page >> 12 };
		hypercall(HYPERVISOR_memory_op, XENMEM_add_to_physmap, (u64)&add, 0);
	}
	return table = (struct grant_entry *)grant_page;
}

static int64_t grant(u16 client, void *page)
{
	static u32 next = GNTTAB_RESERVED;
	volatile struct grant_entry *entry = grant_table() + next;
	entry->domid = client;
	entry->frame = platform == XEN_PV ? machine_frame((u64)page >> 12) : (u64)page >> 12;
	__atomic_store_n(&entry->flags, GTF_permit_access, __ATOMIC_SEQ_CST);
	return next++;
}

static int64_t offer(u16 client)
{
	struct evtchn_alloc_unbound offered = { DOMID_SELF, client, 0 };
	long error = hypercall(HYPERVISOR_event_channel_op, EVTCHNOP_alloc_unbound, (u64)&offered, 0);
	return error ? -1 : (int64_t)offered.port;
}

static void notify(u32 port)
{
	hypercall(HYPERVISOR_event_channel_op, EVTCHNOP_send, (u64)&port, 0);
}

/* A key is its writer's, and none else may read it ("n"), but who is named ("r"). */
static int publish(u16 client, const char *name, const char *value)
{
	char path[64], answer[64], rights[32];
	append(path, append(path, 0, PATH), name);
	if (store_ask(XS_READ, "domid", 0, 0, answer))
		return -1;
	u32 own = number_of(answer), length = 0;
	while (value[length])
		length++;
	if (store_ask(XS_WRITE, path, value, length, answer))
		return -1;
	length = append_number(rights, append(rights, 0, "n"), own) + 1;
	length = append_number(rights, append(rights, length, "r"), client) + 1;
	return store_ask(XS_SET_PERMS, path, rights, length, answer);
}

void vchan_init(void)
{
	static struct uniprof_vchan_guest guest = { grant, offer, notify, publish, 0 };
	char answer[64];
	if (platform == XEN_PV) {
		store = machine_page(start_info->store_mfn);
		store_port = start_info->store_evtchn;
	} else {
		pvh_start_events();
		store = (void *)(hvm_param(HVM_PARAM_STORE_PFN) << 12);
		store_port = hvm_param(HVM_PARAM_STORE_EVTCHN);
	}
	for (int i = 0; i < 64; i++)
		shared.evtchn_mask[i] = ~0ul;
	while (store_ask(XS_READ, PATH "client", 0, 0, answer))
		hypercall(HYPERVISOR_sched_op, SCHEDOP_yield, 0, 0);
	guest.client = number_of(answer);
	int error = uniprof_vchan_init(&vchan, &guest, pages, sizeof pages / sizeof *pages);
	if (error)
		fault(0xcc, -error);
}
