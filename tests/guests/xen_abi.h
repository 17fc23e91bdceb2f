/* The few numbers and layouts of Xen's public interface that a 64-bit guest needs, so that the
 * image builds without Xen's headers. Each names its header under xen/include/public/. */
#pragma once
#include "guest.h"

/* xen.h */
#define HYPERVISOR_set_callbacks 4
#define HYPERVISOR_memory_op 12
#define HYPERVISOR_update_va_mapping 14
#define HYPERVISOR_grant_table_op 20
#define HYPERVISOR_vcpu_op 24
#define HYPERVISOR_sched_op 29
#define HYPERVISOR_event_channel_op 32
#define HYPERVISOR_hvm_op 34
#define UVMF_INVLPG 2
#define VIRQ_TIMER 0
#define FLAT_KERNEL_CS 0xe033
#define FLAT_KERNEL_SS 0xe02b

struct start_info {
	char magic[32];
	u64 nr_pages, shared_info;
	u32 flags, pad0;
	u64 store_mfn;
	u32 store_evtchn, pad1;
	u64 console_mfn;
	u32 console_evtchn, pad2;
	u64 pt_base, nr_pt_frames, mfn_list, mod_start, mod_len;
	char cmd_line[1024];
};

struct vcpu_info {
	u8 upcall_pending, upcall_mask, pad[6];
	u64 pending_sel, arch[2], time[4];
};

struct shared_info {
	struct vcpu_info vcpu_info[32];
	u64 evtchn_pending[64], evtchn_mask[64];
	char rest[4096 - 3072];
};

/* arch-x86/xen.h: the interrupt frame's place in struct vcpu_guest_context, and its end */
struct vcpu_guest_context {
	u64 fpu[64], flags;
	u64 r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, vector;
	u64 rip, cs, rflags, rsp, ss, segments[4];
	u64 trap_ctxt[512], ldt[2], gdt[17];
	u64 kernel_ss, kernel_sp, ctrlreg[8], debugreg[8], callbacks[3], vm_assist, bases[3];
};
#define VGCF_in_kernel 4
_Static_assert(__builtin_offsetof(struct vcpu_guest_context, rip) == 648, "layout");
_Static_assert(__builtin_offsetof(struct vcpu_guest_context, ctrlreg) == 4984, "layout");
_Static_assert(sizeof(struct vcpu_guest_context) == 5168, "layout");

/* vcpu.h, hvm/hvm_vcpu.h */
#define VCPUOP_initialise 0
#define VCPUOP_up 1
#define VCPUOP_get_runstate_info 4
#define VCPUOP_set_periodic_timer 6
struct vcpu_hvm_context {
	u32 mode, pad;                  /* 1: started in long mode */
	u64 rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, rip, rflags, cr0, cr3, cr4, efer;
};

struct vcpu_runstate_info { u32 state, pad; u64 state_entry_time, time[4]; };

/* sched.h */
#define SCHEDOP_yield 0
#define SCHEDOP_block 1
#define SCHEDOP_shutdown 2
#define SCHEDOP_poll 3
struct sched_poll { u64 ports; u32 nr_ports, pad; u64 timeout; };

/* event_channel.h */
#define EVTCHNOP_bind_virq 1
#define EVTCHNOP_send 4
#define EVTCHNOP_alloc_unbound 6
struct evtchn_bind_virq { u32 virq, vcpu, port; };
struct evtchn_alloc_unbound { u16 dom, remote_dom; u32 port; };

/* io/console.h */
struct console_ring {
	char in[1024], out[2048];
	u32 in_cons, in_prod, out_cons, out_prod;
};

/* hvm/hvm_op.h, hvm/params.h */
#define DOMID_SELF 0x7ff0
#define HVMOP_set_param 0
#define HVMOP_get_param 1
#define HVM_PARAM_CALLBACK_IRQ 0        /* 2 in the last byte: a vector, of all vCPUs */
#define HVM_PARAM_STORE_PFN 1
#define HVM_PARAM_STORE_EVTCHN 2
#define HVM_PARAM_CONSOLE_PFN 17
#define HVM_PARAM_CONSOLE_EVTCHN 18
struct hvm_param { u16 domid, pad; u32 index; u64 value; };

/* arch-x86/hvm/start_info.h */
struct hvm_start_info { u32 magic, version, flags, nr_modules; u64 modlist, cmdline; };

/* memory.h, xen.h */
#define XENMEM_add_to_physmap 7
#define XENMAPSPACE_shared_info 0
#define XENMAPSPACE_grant_table 1
struct xen_add_to_physmap { u16 domid, size; u32 space; u64 idx, gpfn; };

/* grant_table.h: version 1 */
#define GNTTABOP_setup_table 2
#define GTF_permit_access 1
#define GNTTAB_RESERVED 8
struct grant_entry { u16 flags, domid; u32 frame; };
struct gnttab_setup_table { u16 dom, pad; u32 nr_frames; short status; u16 pad2[3]; u64 *frame_list; };
_Static_assert(__builtin_offsetof(struct gnttab_setup_table, frame_list) == 16, "layout");

/* io/xs_wire.h */
#define XS_READ 2
#define XS_WRITE 11
#define XS_SET_PERMS 14
#define XS_ERROR 16
struct xsd_sockmsg { u32 type, req_id, tx_id, len; };
struct xenstore_ring {
	char req[1024], rsp[1024];
	u32 req_cons, req_prod, rsp_cons, rsp_prod;
};

/* arch-x86/cpuid.h: the leaf of time; the time-stamp counter's kHz in ecx of the first part */
#define XEN_CPUID_TIME 0x40000003
