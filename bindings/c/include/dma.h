/*
 * dma.h: hardware memory copies by one interface, on every engine of the library.
 *
 * A program opens an engine by its name, creates regions of memory that the engine's device can reach, and
 * submits operations to a queue. The caller gives each operation a token. The operation's completion reports
 * this token.
 *
 * Status.    Most functions return a dma_status: DMA_OK, or the kind of the failure. dma_last_error describes
 *            the calling thread's last failure. After a failure, output arguments are unchanged, unless the
 *            function's description says otherwise.
 * Errors.    Descriptions list the errors of a function, without the two that most functions share:
 *            DMA_CLOSED, if a handle was closed, and DMA_INVALID_ARGUMENT, if a handle is invalid, a pointer
 *            is NULL though its description does not allow it, or the `size` of a struct is below that of its
 *            first version. An array of 0 elements may be NULL.
 * Handles.   A handle is a number in a struct. A struct of zeros is an invalid handle. A handle stays invalid
 *            after its object is closed: its use is an error, and no other object gets the same number.
 * Memory.    The program may read and write the memory of its regions at any time. The value of a byte is
 *            undefined while a device writes it. The memory stays mapped until the region is closed.
 * Structs.   A struct that begins with `size` may grow in later versions. The caller sets `size` to the
 *            sizeof of the struct. The library writes at most this number of bytes, and treats options that
 *            the caller's version lacks as 0. An option that is 0 has its default. Options that the library
 *            does not know are refused (DMA_UNSUPPORTED). Other structs never change.
 * Blocking.  A function blocks only where its description says so. Times are in milliseconds.
 * Threads.   "Any thread": any number of threads may call the function at the same time. "One thread at a
 *            time": the caller serializes the calls that name the same object; two calls at once fail with
 *            DMA_IN_USE. "The queue's threads": any thread for a shared queue, one thread at a time for other
 *            queues. A queue may move between threads. A signal handler must not call any function, and
 *            pthread_cancel must not end a function.
 * Forks.     A forked child cannot use the engines and queues of its parent (DMA_UNSUPPORTED), and no call
 *            with them blocks. It may close all objects, which leaves the parent's alone, and open its own.
 *            An object that a thread of the parent was calling at the fork is in use in the child
 *            (DMA_IN_USE) until the child closes it, which leaks the child's copy.
 * Panics.    A defect of the library is reported as DMA_INTERNAL. It never unwinds into C.
 *
 * C99 and later, C++11 and later; Linux.
 */
#ifndef DMA_H
#define DMA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface: the number in the library's file name, libdma.so.0. */
#define DMA_ABI_VERSION 0u

/* ---- Status and errors ------------------------------------------------------------------------------------------ */

/* DMA_OK or the kind of a failure: a value of dma_status_code. */
typedef int32_t dma_status;

/* Later versions may add codes, so treat unknown codes as failures. */
enum dma_status_code {
  DMA_OK = 0,
  DMA_INVALID_ARGUMENT = 1,   /* An argument is invalid: NULL, an invalid handle, a bad option. */
  DMA_OUT_OF_RANGE = 2,       /* A range exceeds its region, or a number exceeds its limit. */
  DMA_LENGTH_MISMATCH = 3,    /* Source and destination differ in length. */
  DMA_OVERLAP = 4,            /* Source and destination overlap. */
  DMA_ACCESS_DENIED = 5,      /* The region does not grant the right. */
  DMA_WRONG_ENGINE = 6,       /* The region and the queue belong to different engines. */
  DMA_UNSUPPORTED = 7,        /* The engine cannot do this. */
  DMA_QUEUE_FULL = 8,         /* Poll the queue, and submit again. */
  DMA_IN_USE = 9,             /* An operation, an export, a batch or another thread uses the object. */
  DMA_OUT_OF_MEMORY = 10,
  DMA_OUT_OF_RESOURCES = 11,  /* No channel, queue or handle is left. */
  DMA_NOT_FOUND = 12,         /* No such engine, device or token. */
  DMA_PERMISSION_DENIED = 13, /* The operating system refuses. */
  DMA_TIMED_OUT = 14,
  DMA_DEVICE_FAULT = 15,      /* The device failed. The destination is undefined; submitting again is safe. */
  DMA_ABORTED = 16,           /* A reset ended the operation. Submitting again is safe. */
  DMA_DEVICE_LOST = 17,       /* The device has failed for good. */
  DMA_REVOKED = 18,           /* The peer revoked the memory, or exited. */
  DMA_CLOSED = 19,            /* The handle or the queue was closed. */
  DMA_MALFORMED = 20,         /* The bytes are not a valid export descriptor. */
  DMA_VERSION_MISMATCH = 21,
  DMA_MISSING_SDK = 22,       /* A vendor's library is not installed. */
  DMA_OS = 23,                /* A system call failed. */
  DMA_INTERNAL = 255          /* A defect of the library. */
};

/* Advice whether the same call can succeed if it is repeated: a value of dma_retry_code. */
typedef int32_t dma_retry;

enum dma_retry_code {
  DMA_RETRY_NEVER = 0,
  DMA_RETRY_NOW = 1,
  DMA_RETRY_FEW_TIMES = 2,      /* Now, but only a few times, such as three: each failure may reset the device. */
  DMA_RETRY_AFTER_PROGRESS = 3, /* After the queue is polled, or the object is no longer in use. */
  DMA_RETRY_LATER = 4           /* After some time. */
};

/* A failure. Strings are valid until the thread's next failure or dma_last_error; never NULL. */
typedef struct dma_error {
  size_t size;
  dma_status status;
  dma_retry retry;
  int32_t native;          /* The code of the vendor's library or device; 0 if it has none. */
  uint32_t reserved;
  uint64_t requested;      /* The requested number, and below it the limit; both 0 if the failure has no number. */
  uint64_t limit;
  const char *text;        /* One line: operation, reason, numbers, remedy. */
  const char *remedy;      /* "" if there is none. */
  const char *native_name; /* The name of the native code, such as DOCA_ERROR_IO_FAILED; "" if it has none. */
} dma_error;

/* A copy of a batch that did not succeed. */
typedef struct dma_failure {
  uint64_t index; /* The copy's position in the batch. */
  dma_status status;
  int32_t native;
} dma_failure;

/* Describes the calling thread's last failure: the failure of its last function that failed, or of the last
 * failed completion that it received. Without a failure, the status is DMA_OK. Any thread. */
dma_status dma_last_error(dma_error *error);

/* Reports which copies of a batch failed, if the thread's last failure is the completion of a batch. Writes
 * up to `capacity` entries, and the total number of failed copies to `count`. After DMA_DEVICE_LOST the count
 * is 0: it is not known which copies the device has made. Any thread. */
dma_status dma_last_failures(dma_failure *failures, size_t capacity, size_t *count);

/* Returns a status in a few words, such as "queue full". The string is static. Any thread. */
const char *dma_status_text(dma_status status);

/* Returns the retry advice. It is for the call: repeat a wait, not the operation. Any thread. */
dma_retry dma_status_retry(dma_status status);

/* dma_abi_version returns the library's DMA_ABI_VERSION. dma_version returns the library's version as text,
 * such as "0.1.0". Any thread. */
uint32_t dma_abi_version(void);
const char *dma_version(void);

/* ---- Engines ---------------------------------------------------------------------------------------------------- */

typedef struct dma_engine { uint64_t id; } dma_engine;

/* For untrusted names: refuses names with options that load code, open files or reach a network. */
#define DMA_OPEN_UNTRUSTED 1u

/* Opens an engine by its name, such as "auto", "cpu", "sim:seed=7", "doca:03:00.0" or "verify+cpu". dma_open
 * calls this function with the header's version. May block while a device starts. Any thread.
 * DMA_VERSION_MISMATCH: the header and the library have different versions. DMA_INVALID_ARGUMENT: a bad name
 * or flag. DMA_NOT_FOUND, DMA_MISSING_SDK, DMA_PERMISSION_DENIED and others: the engine cannot be opened; the
 * error contains the remedy. */
dma_status dma_open_abi(uint32_t abi_version, const char *name, uint32_t flags, dma_engine *engine);

static inline dma_status dma_open(const char *name, dma_engine *engine) {
  return dma_open_abi(DMA_ABI_VERSION, name, 0, engine);
}

/* Closes an engine. Its regions and queues keep working. Any thread.
 * DMA_IN_USE: another thread is in a call with it. */
dma_status dma_close(dma_engine engine);

/* Native capabilities. All engines can copy, and all operations of this header work on all engines. */
enum dma_capability {
  DMA_CAN_FILL = 1 << 0,
  DMA_CAN_FENCE = 1 << 1,
  DMA_CAN_ALLOCATE = 1 << 2,        /* dma_region_allocate, in host memory. */
  DMA_CAN_REGISTER = 1 << 3,        /* dma_region_register. */
  DMA_CAN_EXPORT = 1 << 4,          /* dma_region_export. */
  DMA_CAN_IMPORT = 1 << 5,          /* dma_region_import. */
  DMA_CAN_CPU_COPIES = 1 << 6,      /* The CPU copies, so a doorbell costs no more than a function call. */
  DMA_CAN_ALLOCATE_DEVICE = 1 << 7, /* dma_region_allocate, in device memory. */
  DMA_CAN_IN_ORDER = 1 << 8,        /* The device reports descriptors in the order of submission. */
  DMA_CAN_COMPARE = 1 << 9,
  DMA_CAN_CRC32C = 1 << 10,
  DMA_CAN_COPY_CRC32C = 1 << 11,
  DMA_CAN_COPY_TO_BOTH = 1 << 12,
  DMA_CAN_REGISTER_DEVICE = 1 << 13, /* dma_region_register_device. */
  DMA_CAN_REGISTER_DMABUF = 1 << 14  /* dma_region_register_dmabuf. */
};

/* The description of an engine. Strings are valid until the engine is closed. */
typedef struct dma_engine_info {
  size_t size;
  const char *backend; /* "cpu", "sim", "doca", "ioat", "dsa", "rdma", "cuda", "auto", ... */
  const char *device;  /* A PCI address, or a description. */
  const char *version; /* The version of the library or driver that the engine uses. */
  const char *model;   /* For a modelled device, its profile; otherwise NULL. */
  uint32_t capabilities; /* Values of dma_capability. */
  int32_t numa_node;     /* The device's NUMA node; -1 if it has none or the node is unknown. */
  uint64_t max_transfer; /* The maximum length of a descriptor, in bytes. Longer operations are split. */
  size_t max_segments;   /* The maximum number of segments on either side of a descriptor. Longer lists are split. */
  size_t max_queue_depth;
  size_t default_queue_depth;
  size_t max_queues;          /* The maximum number of open queues; 0 if only memory limits it. */
  size_t register_alignment;  /* Registered memory must have this alignment (address and length), in bytes. */
  size_t preferred_alignment; /* The smallest alignment at which copies run at full speed, in bytes. */
} dma_engine_info;

/* Describes an engine. Any thread. */
dma_status dma_engine_describe(dma_engine engine, dma_engine_info *info);

/* Writes the engine's decisions so far and their reasons as readable text, truncated to `capacity` bytes with
 * its NUL. Writes the length of the whole text without NUL to `len`. Engines with nothing to explain write
 * "". Any thread. */
dma_status dma_engine_explain(dma_engine engine, char *text, size_t capacity, size_t *len);

/* ---- Reports: the engines of this machine, and why others cannot be used ---------------------------------------- */

typedef struct dma_report { uint64_t id; } dma_report;

enum dma_verdict {
  DMA_VERDICT_OK = 0,
  DMA_VERDICT_WARNING = 1, /* The finding may reduce speed, or matters only in some cases. */
  DMA_VERDICT_BAD = 2      /* The engine cannot be used in this state. */
};

/* Strings are valid until the report is closed; never NULL. */
typedef struct dma_report_entry {
  size_t size;
  const char *name;    /* dma_discover: the name that opens the engine. dma_doctor: the backend. */
  const char *subject; /* dma_discover: the device. dma_doctor: the subject of the check. */
  const char *text;    /* The state that was found. */
  const char *remedy;  /* "" if there is nothing to do. */
  uint32_t verdict;    /* A value of dma_verdict. */
  uint32_t usable;     /* dma_discover: 1 if the engine opens. dma_doctor: 1 if the backend can open a device. */
} dma_report_entry;

/* Lists every engine of this machine, and the reason for each engine that cannot be used. Opens devices,
 * which may block for seconds. Any thread. */
dma_status dma_discover(dma_report *report);

/* Checks whether this machine has what a backend needs; checks all backends if `backend` is NULL. May block
 * for seconds. Any thread.
 * DMA_INVALID_ARGUMENT: no backend has this name. */
dma_status dma_doctor(const char *backend, dma_report *report);

/* Writes the number of entries. Any thread. */
dma_status dma_report_count(dma_report report, size_t *count);

/* Writes entry `index`, from 0 on. Any thread. DMA_OUT_OF_RANGE: the report has fewer entries. */
dma_status dma_report_read(dma_report report, size_t index, dma_report_entry *entry);

/* Frees a report. Any thread. */
dma_status dma_report_close(dma_report report);

/* ---- Regions: memory that a device can reach -------------------------------------------------------------------- */

typedef struct dma_region { uint64_t id; } dma_region;

/* Rights. A region's rights are those of the engine's device. An export's rights are those of the peer. */
#define DMA_READ 1u
#define DMA_WRITE 2u
/* Rights that exports of registered memory may grant, in addition to the rights of the engine's device. */
#define DMA_EXPORT_READ 4u
#define DMA_EXPORT_WRITE 8u

enum dma_place {
  DMA_PLACE_HOST = 0,
  DMA_PLACE_DEVICE = 1 /* The device's own memory, which the CPU may be unable to access. */
};

#define DMA_HUGE_PAGES 1u /* Prefer huge pages. */
#define DMA_ON_NODE 2u    /* Allocate the memory on the NUMA node `node`. */

typedef struct dma_memory_options {
  size_t size;
  size_t align;           /* Alignment of the first byte, a power of two. Default: 4096. */
  uint32_t rights;        /* Default: DMA_READ | DMA_WRITE. */
  uint32_t export_rights; /* The rights that exports may grant. Default: none. */
  uint32_t place;         /* A value of dma_place. */
  uint32_t flags;         /* DMA_HUGE_PAGES, DMA_ON_NODE. */
  uint32_t node;
  uint32_t reserved;      /* 0. */
} dma_memory_options;

/* Allocates `len` zeroed bytes that the engine's device can reach. options may be NULL. May block while the
 * system maps and pins the memory. dma_region_close frees it. Any thread.
 * DMA_INVALID_ARGUMENT: a bad option. DMA_UNSUPPORTED: the engine has no memory in this place, or cannot
 * export it. DMA_OUT_OF_MEMORY. DMA_PERMISSION_DENIED: pinning is refused. DMA_NOT_FOUND: the node does not
 * exist. */
dma_status dma_region_allocate(dma_engine engine, size_t len, const dma_memory_options *options, dma_region *region);

/* Registers `len` bytes of the caller's memory, which must stay mapped until dma_region_close has returned
 * DMA_OK. With only DMA_READ, the memory need not be writable. With DMA_EXPORT_READ or DMA_EXPORT_WRITE,
 * dma_region_export may grant a peer these rights, if the engine exports registered memory, as rdma does.
 * Never copies the bytes. May block while the system pins the memory. Any thread.
 * DMA_INVALID_ARGUMENT: memory is NULL, no rights, or memory that the device cannot use (the remedy names the
 * alignment).
 * DMA_OUT_OF_RANGE: more bytes than an address space has. DMA_UNSUPPORTED: the engine cannot register memory,
 * or cannot export registered memory. DMA_IN_USE: the device registers memory only once.
 * DMA_PERMISSION_DENIED: pinning is refused. */
dma_status dma_region_register(dma_engine engine, void *memory, size_t len, uint32_t rights, dma_region *region);

/* The library calls this function once, when no device uses the memory any more: on any thread that is in a
 * function of the library, or on a thread of the library. The function must not close or use the queue whose
 * function calls it. It must return normally, without a C++ exception or longjmp. */
typedef void (*dma_release)(void *context);

/* Registers memory as dma_region_register does, with a release function. dma_region_close then succeeds at
 * once. The library calls release(context) when the last operation, batch or export that uses the memory has
 * ended. If a device never answers, release is never called. If this function fails, release is not called.
 * Any thread. */
dma_status dma_region_register_owned(dma_engine engine, void *memory, size_t len, uint32_t rights, dma_release release,
                                     void *context, dma_region *region);

/* Registers device memory that another library allocated at the device's address `address`. It must stay
 * allocated until dma_region_close has returned DMA_OK. Any thread.
 * DMA_UNSUPPORTED: the engine lacks DMA_CAN_REGISTER_DEVICE. Other errors as for dma_region_register. */
dma_status dma_region_register_device(dma_engine engine, uint64_t address, size_t len, uint32_t rights, dma_region *region);

/* Registers `len` bytes of a dma-buf, from byte `offset` on. The library duplicates `fd`. With
 * DMA_EXPORT_READ or DMA_EXPORT_WRITE, dma_region_export may grant a peer these rights. Any thread.
 * DMA_UNSUPPORTED: the engine lacks DMA_CAN_REGISTER_DMABUF. DMA_INVALID_ARGUMENT: fd is not an open file.
 * Other errors as for dma_region_register. */
dma_status dma_region_register_dmabuf(dma_engine engine, int fd, uint64_t offset, size_t len, uint32_t rights,
                                      dma_region *region);

/* Writes a new file descriptor of a dma-buf of the region's memory, which the caller closes, and the offset
 * of the region's first byte in the dma-buf. With both, the engine of another device registers the memory
 * without a mapping for the CPU (dma_region_register_dmabuf), so that an RDMA NIC copies from and to a GPU's
 * memory. That region must be closed before this one. Any thread.
 * DMA_UNSUPPORTED: the engine, its driver or this memory has no dma-buf. DMA_ACCESS_DENIED: the region lacks
 * DMA_READ or DMA_WRITE. */
dma_status dma_region_dmabuf(dma_region region, int *fd, uint64_t *offset);

typedef struct dma_region_info {
  size_t size;
  size_t len;      /* In bytes. */
  void *memory;    /* The first byte; NULL if the CPU cannot reach it. */
  uint32_t rights; /* Rights of the device. */
  uint32_t reserved;
} dma_region_info;

/* Describes a region. Any thread. */
dma_status dma_region_describe(dma_region region, dma_region_info *info);

/* Closes a region: deregisters or frees its memory, or ends its import. A region in use stays open
 * (DMA_IN_USE), so that its memory is never reused while a device may access it. If a device never answers,
 * the region stays in use forever. A region with a release function closes at once. May block while the
 * system unpins the memory. Any thread.
 * DMA_IN_USE: an operation in flight, a batch, an export or another thread uses the region. An operation is
 * in flight until its completion is received, or until the call that submits it has executed it. */
dma_status dma_region_close(dma_region region);

/* ---- Export and import: memory of other processes --------------------------------------------------------------- */

typedef struct dma_export { uint64_t id; } dma_export;

/* Grants a peer `rights` to `len` bytes from `offset` on, until the export is revoked. Any thread.
 * DMA_UNSUPPORTED: the engine cannot export this memory. DMA_ACCESS_DENIED: the memory was not allocated with
 * these export_rights. DMA_OUT_OF_RANGE. DMA_INVALID_ARGUMENT: no rights. DMA_OUT_OF_RESOURCES. */
dma_status dma_region_export(dma_region region, size_t offset, size_t len, uint32_t rights, dma_export *exported);

/* Writes the descriptor that the peer needs to import the memory, and its length to `len`, at most 66 KiB.
 * Send it to the peer over any channel. Any thread.
 * DMA_OUT_OF_RANGE: the descriptor is longer than `capacity`; then only `len` is written. */
dma_status dma_export_descriptor(dma_export exported, void *bytes, size_t capacity, size_t *len);

/* Revokes an export. After DMA_OK, no peer accesses the memory, and the handle is closed. Blocks up to
 * timeout_ms while a peer copies. Any thread.
 * DMA_TIMED_OUT: a peer still copies, and the export is still open. */
dma_status dma_export_revoke(dma_export exported, uint32_t timeout_ms);

/* Imports a peer's memory. May block for a bounded time while the peer answers. dma_region_close ends the
 * import. Any thread.
 * DMA_MALFORMED: the bytes are not a descriptor. DMA_UNSUPPORTED: the engine cannot import this memory.
 * DMA_REVOKED. DMA_PERMISSION_DENIED. DMA_INVALID_ARGUMENT: bytes is NULL, for any len. */
dma_status dma_region_import(dma_engine engine, const void *bytes, size_t len, dma_region *region);

/* ---- Queues ----------------------------------------------------------------------------------------------------- */

typedef struct dma_queue { uint64_t id; } dma_queue;

enum dma_cache_hint {
  DMA_CACHE_AUTO = 0, /* The engine decides. */
  DMA_CACHE_HOT = 1,  /* The data is in the caches, or will be read soon. */
  DMA_CACHE_COLD = 2  /* The data is used once. */
};

typedef struct dma_queue_options {
  size_t size;
  size_t depth;              /* Maximum number of operations in flight, for each lane. Default: the engine's. */
  uint32_t hint;             /* A value of dma_cache_hint. */
  uint32_t stall_timeout_ms; /* A device that completes no operation for this time is stalled; a full queue then returns
                                DMA_TIMED_OUT. Default: 30,000. */
  uint32_t lanes;            /* 0: a queue for one thread at a time. 1 or more: a queue that any number of threads share
                                with this number of device queues, each with a thread of the library; up to 65,535. */
  uint32_t reserved;         /* 0. */
} dma_queue_options;

/* Opens a queue. options may be NULL. A shared queue (with lanes) has no fences, and any thread may call its
 * functions. All other rules are the same for both kinds of queue. Any thread.
 * DMA_INVALID_ARGUMENT: a bad option. DMA_OUT_OF_RANGE: the depth is too great, or too many lanes.
 * DMA_OUT_OF_RESOURCES: the device has no channel left. DMA_DEVICE_LOST. */
dma_status dma_queue_open(dma_engine engine, const dma_queue_options *options, dma_queue *queue);

/* Stops a queue: refuses new operations, blocks up to timeout_ms for operations in flight, and then aborts
 * the rest, which takes up to one more second. Afterwards dma_queue_poll, dma_queue_wait and
 * dma_queue_wait_for return the remaining completions, and the functions that submit,
 * dma_queue_wait_for_room, dma_queue_flush, dma_queue_descriptor and dma_queue_arm return DMA_CLOSED. One
 * thread at a time.
 * DMA_TIMED_OUT, or DMA_DEVICE_LOST if the device is lost: some operations did not end. They are reported as
 * failed, but a device may still access their memory, so their regions stay in use forever. */
dma_status dma_queue_stop(dma_queue queue, uint32_t timeout_ms);

/* Stops a queue as dma_queue_stop does, unless it is already stopped, discards the remaining completions, and
 * closes the handle, even if it returns DMA_TIMED_OUT or DMA_DEVICE_LOST. Blocks as dma_queue_stop does. One
 * thread at a time.
 * DMA_TIMED_OUT, DMA_DEVICE_LOST: as for dma_queue_stop. DMA_IN_USE: another thread is in a call with the
 * queue, which stays open. */
dma_status dma_queue_close(dma_queue queue, uint32_t timeout_ms);

/* A range of bytes in a region. A range of 0 bytes is legal. */
typedef struct dma_range {
  dma_region region;
  size_t offset; /* In bytes. */
  size_t len;    /* In bytes. */
} dma_range;

typedef struct dma_copy {
  dma_range src;
  dma_range dst;
  uint64_t token;
} dma_copy;

typedef struct dma_completion {
  uint64_t token;
  uint64_t result; /* The CRC-32C, or the offset of the first difference; 0 for other operations and for failures. */
  dma_status status;
  int32_t native; /* The code of the vendor's library or device for a failure; 0 if it has none. */
} dma_completion;

/* The result of a comparison of equal bytes. */
#define DMA_EQUAL UINT64_MAX

/*
 * The functions that submit. They do not block. A queue for one thread collects operations, and passes them
 * to the device at dma_queue_flush or a wait. A shared queue passes them on without a flush. Operations are
 * unordered, except across a fence. Ranges of one operation must not overlap. Operations of any length and
 * lists of any shape are legal.
 *
 * An operation is in flight from its submission until its completion is received. During that time it
 * counts against the depth of the queue, and its regions are in use. Exception: a copy that the library has
 * executed within the call no longer uses its regions, which may be closed before its completion is
 * received. Tokens need not be unique.
 *
 * The queue's threads may call them. Errors of all these functions: DMA_QUEUE_FULL. DMA_TIMED_OUT: the queue
 * is full, and its device is stalled. DMA_DEVICE_LOST. DMA_LENGTH_MISMATCH. DMA_OVERLAP. DMA_ACCESS_DENIED.
 * DMA_WRONG_ENGINE. DMA_OUT_OF_RANGE: a range exceeds its region. DMA_CLOSED: the queue is stopped, or a
 * handle was closed. DMA_IN_USE: another thread is in a call with this queue. After an error, nothing was
 * submitted, unless the function's description says otherwise.
 */

/* Submits `count` copies, each with its token, in their order until one is refused. Writes the number of
 * accepted copies to `accepted`, even after an error, which is the error of the refused copy. accepted may be
 * NULL. */
dma_status dma_queue_copy(dma_queue queue, const dma_copy *copies, size_t count, size_t *accepted);

/* Submits one copy from a list of ranges to a list of the same total length (gather, scatter). */
dma_status dma_queue_copy_list(dma_queue queue, const dma_range *src, size_t src_count, const dma_range *dst,
                               size_t dst_count, uint64_t token);

/* Submits one copy of src to both dst and `also`. For the CRC-32C too, submit dma_queue_copy_crc32c to one
 * destination and dma_queue_copy to the other: both may be in flight at once, because they only read src. */
dma_status dma_queue_copy_to_both(dma_queue queue, const dma_range *src, const dma_range *dst, const dma_range *also,
                                  uint64_t token);

/* Submits a fill of a list of ranges with repetitions of the 8 bytes at `pattern`, from the first byte of the
 * list on.
 * DMA_UNSUPPORTED: the engine can neither fill nor allocate memory to copy from. */
dma_status dma_queue_fill(dma_queue queue, const dma_range *dst, size_t dst_count, const uint8_t *pattern, uint64_t token);

/* Submits a comparison of a with b, which may overlap. The result is the offset of the first byte that
 * differs, or DMA_EQUAL. DMA_UNSUPPORTED: neither the device nor the CPU can do this. */
dma_status dma_queue_compare(dma_queue queue, const dma_range *a, const dma_range *b, uint64_t token);

/* Submits the computation of the CRC-32C (iSCSI, NVMe) of src. The result is the CRC. `seed` is the CRC-32C
 * of preceding bytes, or 0. DMA_UNSUPPORTED: as for dma_queue_compare. */
dma_status dma_queue_crc32c(dma_queue queue, const dma_range *src, uint32_t seed, uint64_t token);

/* Submits a copy of src to dst. The result is the CRC-32C of the bytes, as for dma_queue_crc32c. */
dma_status dma_queue_copy_crc32c(dma_queue queue, const dma_range *src, const dma_range *dst, uint32_t seed, uint64_t token);

/* Delays operations that are submitted later until all earlier ones have completed. Does not block. One
 * thread at a time.
 * DMA_UNSUPPORTED: the queue is shared. */
dma_status dma_queue_fence(dma_queue queue);

/* Passes all collected operations to the device, with one doorbell. Does not block. A shared queue needs no
 * flush. The queue's threads. */
dma_status dma_queue_flush(dma_queue queue);

/* Discards the completions of all operations in flight with this token: they are never reported. The
 * operations themselves continue, and their regions stay in use until they have ended and the queue is polled
 * or armed. The queue's threads.
 * DMA_NOT_FOUND: no operation has this token. */
dma_status dma_queue_cancel(dma_queue queue, uint64_t token);

/* Makes progress, and writes up to `capacity` completions and their number to `count`. Does not block. A
 * failed completion is not a failure of this function. dma_last_error describes the last failed completion.
 * To describe each failure, poll with a capacity of 1. The queue's threads. */
dma_status dma_queue_poll(dma_queue queue, dma_completion *completions, size_t capacity, size_t *count);

/* Flushes, and blocks up to timeout_ms until there is at least one completion. Writes completions as
 * dma_queue_poll does. If no operation is in flight, returns DMA_OK at once with a count of 0. The queue's
 * threads.
 * DMA_TIMED_OUT: no operation has ended. DMA_INVALID_ARGUMENT: capacity is 0. */
dma_status dma_queue_wait(dma_queue queue, dma_completion *completions, size_t capacity, uint32_t timeout_ms, size_t *count);

/* Flushes, blocks up to timeout_ms until the operation with this token has ended, and writes its completion.
 * If several operations have this token, waits for one of them. Other completions stay in the queue. Takes
 * time in proportion to the depth. The queue's threads.
 * DMA_TIMED_OUT: the operation has not ended. It is still in flight: wait again, and do not submit it again.
 * DMA_NOT_FOUND: no operation has this token. */
dma_status dma_queue_wait_for(dma_queue queue, uint64_t token, uint32_t timeout_ms, dma_completion *completion);

/* Waits until the queue has room for an operation. If it has room, returns DMA_OK at once with a count of 0.
 * Otherwise flushes, and blocks up to timeout_ms until there is at least one completion or other room. Writes
 * completions as dma_queue_poll does; each of them makes room. The queue's threads. On a shared queue,
 * `capacity` may be 0 if other threads receive the completions, and another thread may take the room first.
 * DMA_TIMED_OUT: there is no room; dma_queue_stalled tells whether the device is stalled.
 * DMA_INVALID_ARGUMENT: capacity is 0 and the queue is not shared. */
dma_status dma_queue_wait_for_room(dma_queue queue, dma_completion *completions, size_t capacity, uint32_t timeout_ms,
                                   size_t *count);

/* Writes a file descriptor to sleep on by poll(2) or epoll(7): see dma_queue_arm. The queue owns it; do not
 * close, read or write it. The queue's threads.
 * DMA_UNSUPPORTED: this queue can only be polled. DMA_OUT_OF_RESOURCES, DMA_PERMISSION_DENIED, DMA_OS: the
 * system cannot provide a descriptor. */
dma_status dma_queue_descriptor(dma_queue queue, int *fd);

/* Flushes, makes progress, and arms the descriptor: the next completion makes it readable. Writes to `ready`
 * the number of completions that dma_queue_poll would return now. If it is 0, sleep on the descriptor. After
 * a wake-up, call dma_queue_arm again, because a wake-up need not mean a completion. Does not block. The
 * queue's threads.
 * DMA_DEVICE_LOST: the device is lost, and no completion is left to receive. DMA_INVALID_ARGUMENT: no
 * descriptor was requested. DMA_OS. */
dma_status dma_queue_arm(dma_queue queue, size_t *ready);

/* Counts of a queue so far. Every accepted operation is counted in exactly one of completed, failed, aborted,
 * abandoned and in_flight. Here, an operation is in flight until the device has ended it. Each copy of a
 * batch counts as one operation. */
typedef struct dma_counters {
  size_t size;
  uint64_t submitted;
  uint64_t completed;
  uint64_t failed;
  uint64_t aborted;
  uint64_t abandoned; /* Operations that had not ended when the queue was stopped. */
  uint64_t in_flight;
  uint64_t bytes; /* Bytes written by operations that completed. */
  uint64_t full;  /* Refusals because the queue was full. */
  uint64_t descriptors;
  uint64_t doorbells;
  uint64_t polls;
  uint64_t resets; /* Device resets that the queue recovered from. */
} dma_counters;

/* Reads a queue's counters, also after dma_queue_stop. The queue's threads. */
dma_status dma_queue_counters(dma_queue queue, dma_counters *counters);

/* Writes the maximum number of operations in flight, and the number of operations that can be submitted
 * before the queue is full. Either pointer may be NULL. The queue's threads. */
dma_status dma_queue_depth(dma_queue queue, size_t *depth, size_t *available);

/* Writes the number of milliseconds for which the device has had operations and completed none of them, if
 * this time exceeds the stall timeout, otherwise 0. The queue need not be full. With several lanes, the
 * longest such time counts. On a queue for one thread, only time in the waits counts, and time between calls
 * of this function in which the program polls the queue. Does not poll. To recover, stop the queue with a
 * short timeout, and open another one. The queue's threads. */
dma_status dma_queue_stalled(dma_queue queue, uint64_t *milliseconds);

/* ---- Batches: lists of copies that are prepared once and submitted repeatedly ----------------------------------- */

typedef struct dma_batch { uint64_t id; } dma_batch;

/* Prepares `count` copies; their tokens are ignored. The batch keeps its regions in use until it is closed.
 * The copies of a batch are unordered, and no copy may write bytes that another copy reads or writes. Any
 * thread.
 * DMA_INVALID_ARGUMENT: no copies. DMA_OUT_OF_RANGE: a range exceeds its region, or there are more than
 * 4,294,967,295 copies. */
dma_status dma_batch_create(const dma_copy *copies, size_t count, dma_batch *batch);

/* Submits a batch, and flushes. A batch counts as one operation of the queue's depth, and has one completion.
 * The queue's threads.
 * DMA_IN_USE: the batch is in flight. Other errors as for the functions that submit. The copies are checked
 * here. */
dma_status dma_queue_submit(dma_queue queue, dma_batch batch, uint64_t token);

/* Frees a batch. Any thread. DMA_IN_USE: the batch is in flight, and stays open. */
dma_status dma_batch_close(dma_batch batch);

/* The CPU copies `len` bytes of a region, from `offset` on, to or from memory that need not be registered.
 * Blocks until the copy is done. Any thread.
 * DMA_UNSUPPORTED: the CPU cannot reach the region. DMA_ACCESS_DENIED: the region was registered without
 * DMA_WRITE. DMA_OUT_OF_RANGE. */
dma_status dma_region_read(dma_region region, size_t offset, void *to, size_t len);
dma_status dma_region_write(dma_region region, size_t offset, const void *from, size_t len);

#ifdef __cplusplus
}
#endif

#endif
