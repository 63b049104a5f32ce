// The data path of the floor: what lies in the file, and how a message goes through it.

#pragma once

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>

#define UNLIKELY(it) __builtin_expect(!!(it), 0)
#define INLINED static inline __attribute__((always_inline))

enum {
    ENDPOINTS = 16,
    SLOTS = 64,
    // The receiver tells the sender after so many slots.
    TOLD = 16,
    INLINE = 40,
    SMALL = 4096,
    // Keeps the memory of neighbouring slots in different sets of a cache.
    APART = 64,
    PIECE = 128 << 10,
    LONGEST = SLOTS / 2 * PIECE,
    COMPLETIONS = 8192,
    ERRORS = 64,
    ADDRESSES = 4096,
    ADDRESS_BYTES = 16,
    INJECTED = SMALL,
};

// What a slot holds: a length of at most LONGEST, and these.
enum { UNTAGGED = 1u << 31, HAS_DATA = 1 << 30, LENGTH = (1 << 30) - 1 };

struct slot {
    uint32_t stamp, word;
    uint64_t tag, data;
    uint8_t bytes[INLINE];
} __attribute__((aligned(64)));

struct ring {
    uint32_t tail;
    struct slot slots[SLOTS];
} __attribute__((aligned(64)));

struct payload {
    uint8_t small[SLOTS][SMALL + APART];
    uint8_t pieces[SLOTS][PIECE];
};

// By sender, then receiver.
struct shared {
    uint32_t endpoints;
    struct ring rings[ENDPOINTS][ENDPOINTS];
    struct payload payloads[ENDPOINTS][ENDPOINTS] __attribute__((aligned(4096)));
};

_Static_assert(sizeof(struct slot) == 64, "a slot is a line");

enum { ANYONE = UINT32_MAX };

// A receive of a tagged message.
struct posted {
    struct posted *next;
    void *target;
    size_t length;
    uint64_t tag, ignored;
    uint32_t source;
    void *context;
};

// A message without a receive.
struct kept {
    struct kept *next;
    uint64_t tag, data;
    uint32_t source, word;
    uint8_t bytes[];
};

// Memory for messages without a tag.
struct buffer {
    struct buffer *next;
    uint8_t *target;
    size_t length, filled;
    void *context;
    int is_multiple;
};

struct queue {
    struct fid_cq fid;
    struct endpoint *endpoint;
    enum fi_cq_format format;
    uint32_t head, tail, empty;
    struct fi_cq_tagged_entry entries[COMPLETIONS];
    uint32_t errors;
    struct fi_cq_err_entry error[ERRORS];
};

struct addresses {
    struct fid_av fid;
    uint32_t count, of[ADDRESSES];
};

struct outgoing {
    struct ring *ring;
    struct payload *payload;
    uint32_t next, told;
};

struct incoming {
    struct ring *ring;
    struct payload *payload;
    uint32_t next;
};

struct endpoint {
    struct fid_ep fid;
    uint32_t number;
    int tells_sends;
    uint64_t send_flags;
    struct queue *sends, *receives;
    uint32_t *addresses;
    struct outgoing to[ENDPOINTS];
    struct incoming from[ENDPOINTS];
    struct posted *posted, **last_posted, *unused;
    struct kept *kept, **last_kept, *kept_untagged, **last_kept_untagged;
    struct buffer *buffers, **last_buffer;
    size_t least;
};

static struct shared *shared;
static uint32_t again, yield_after;

static ssize_t refuse(void) { return -FI_ENOSYS; }
static int accept_all(void) { return 0; }
#define REFUSE ((void *)refuse)
#define ACCEPT ((void *)accept_all)

// Sending

static ssize_t put_long(struct outgoing *out, const uint8_t *from, size_t length, uint64_t tag, uint64_t data,
                        uint32_t kind) {
    if (length > LONGEST) return -FI_EMSGSIZE;
    uint32_t pieces = (length + PIECE - 1) / PIECE;
    out->told = __atomic_load_n(&out->ring->tail, __ATOMIC_ACQUIRE);
    if (out->next + pieces - out->told > SLOTS) return -FI_EAGAIN;
    for (size_t rest = length; rest;) {
        size_t piece = rest < PIECE ? rest : PIECE;
        uint32_t at = out->next % SLOTS;
        struct slot *slot = &out->ring->slots[at];
        memcpy(out->payload->pieces[at], from, piece);
        slot->word = length | kind;
        slot->tag = tag;
        slot->data = data;
        __atomic_store_n(&slot->stamp, ++out->next, __ATOMIC_RELEASE);
        from += piece;
        rest -= piece;
    }
    return 0;
}

INLINED ssize_t put(struct endpoint *self, fi_addr_t to, const void *from, size_t length, uint64_t tag, uint64_t data,
                    uint32_t kind) {
    struct outgoing *out = &self->to[self->addresses[to]];
    if (UNLIKELY(length > SMALL)) return put_long(out, from, length, tag, data, kind);
    uint32_t next = out->next;
    if (UNLIKELY(next - out->told >= SLOTS)) {
        out->told = __atomic_load_n(&out->ring->tail, __ATOMIC_ACQUIRE);
        if (next - out->told >= SLOTS) return -FI_EAGAIN;
    }
    struct slot *slot = &out->ring->slots[next % SLOTS];
    if (length == 8) {
        memcpy(slot->bytes, from, 8);
    } else if (length <= INLINE) {
        memcpy(slot->bytes, from, length);
    } else {
        memcpy(out->payload->small[next % SLOTS], from, length);
    }
    slot->word = length | kind;
    slot->tag = tag;
    slot->data = data;
    __atomic_store_n(&slot->stamp, next + 1, __ATOMIC_RELEASE);
    out->next = next + 1;
    return 0;
}

static inline void tell(struct queue *queue, void *context, uint64_t flags, size_t length, void *buffer, uint64_t data,
                        uint64_t tag) {
    queue->entries[queue->tail++ % COMPLETIONS] = (struct fi_cq_tagged_entry){
        .op_context = context, .flags = flags, .len = length, .buf = buffer, .data = data, .tag = tag};
}

static void tell_error(struct queue *queue, void *context, uint64_t flags, size_t length, void *buffer, uint64_t data,
                       uint64_t tag, size_t cut, int error) {
    if (queue->errors == ERRORS) abort();
    queue->error[queue->errors++] = (struct fi_cq_err_entry){
        .op_context = context, .flags = flags, .len = length, .buf = buffer, .data = data, .tag = tag, .olen = cut,
        .err = error, .prov_errno = error};
}

INLINED ssize_t tell_sent(struct endpoint *self, ssize_t result, uint64_t flags, uint64_t kind, size_t length,
                          void *context) {
    if (!result && (self->tells_sends || flags & FI_COMPLETION)) tell(self->sends, context, kind, length, 0, 0, 0);
    return result;
}

// Several parts as one.
static const void *gathered(const struct iovec *parts, size_t count, size_t *length) {
    static uint8_t all[LONGEST];
    *length = 0;
    if (count == 1) {
        *length = parts->iov_len;
        return parts->iov_base;
    }
    for (size_t at = 0; at < count; at++) {
        if (*length + parts[at].iov_len > LONGEST) {
            *length = LONGEST + 1;
            return all;
        }
        memcpy(all + *length, parts[at].iov_base, parts[at].iov_len);
        *length += parts[at].iov_len;
    }
    return all;
}

#define SELF(fid) ((struct endpoint *)(fid))
#define SENT (FI_SEND | FI_TAGGED)

static ssize_t tagged_inject(struct fid_ep *fid, const void *from, size_t length, fi_addr_t to, uint64_t tag) {
    return put(SELF(fid), to, from, length, tag, 0, 0);
}

static ssize_t tagged_injectdata(struct fid_ep *fid, const void *from, size_t length, uint64_t data, fi_addr_t to,
                                 uint64_t tag) {
    return put(SELF(fid), to, from, length, tag, data, HAS_DATA);
}

static ssize_t tagged_send(struct fid_ep *fid, const void *from, size_t length, void *key, fi_addr_t to, uint64_t tag,
                           void *context) {
    struct endpoint *self = SELF(fid);
    return tell_sent(self, put(self, to, from, length, tag, 0, 0), self->send_flags, SENT, length, context);
}

static ssize_t tagged_senddata(struct fid_ep *fid, const void *from, size_t length, void *key, uint64_t data,
                               fi_addr_t to, uint64_t tag, void *context) {
    struct endpoint *self = SELF(fid);
    return tell_sent(self, put(self, to, from, length, tag, data, HAS_DATA), self->send_flags, SENT, length, context);
}

static ssize_t tagged_sendv(struct fid_ep *fid, const struct iovec *parts, void **keys, size_t count, fi_addr_t to,
                            uint64_t tag, void *context) {
    size_t length;
    const void *from = gathered(parts, count, &length);
    return tagged_send(fid, from, length, 0, to, tag, context);
}

static ssize_t tagged_sendmsg(struct fid_ep *fid, const struct fi_msg_tagged *message, uint64_t flags) {
    struct endpoint *self = SELF(fid);
    size_t length;
    const void *from = gathered(message->msg_iov, message->iov_count, &length);
    uint32_t kind = flags & FI_REMOTE_CQ_DATA ? HAS_DATA : 0;
    ssize_t result = put(self, message->addr, from, length, message->tag, message->data, kind);
    return tell_sent(self, result, flags, SENT, length, message->context);
}

static ssize_t untagged_inject(struct fid_ep *fid, const void *from, size_t length, fi_addr_t to) {
    return put(SELF(fid), to, from, length, 0, 0, UNTAGGED);
}

static ssize_t untagged_send(struct fid_ep *fid, const void *from, size_t length, void *key, fi_addr_t to,
                             void *context) {
    struct endpoint *self = SELF(fid);
    ssize_t result = put(self, to, from, length, 0, 0, UNTAGGED);
    return tell_sent(self, result, self->send_flags, FI_SEND | FI_MSG, length, context);
}

static ssize_t untagged_sendv(struct fid_ep *fid, const struct iovec *parts, void **keys, size_t count, fi_addr_t to,
                              void *context) {
    size_t length;
    const void *from = gathered(parts, count, &length);
    return untagged_send(fid, from, length, 0, to, context);
}

static ssize_t untagged_sendmsg(struct fid_ep *fid, const struct fi_msg *message, uint64_t flags) {
    struct endpoint *self = SELF(fid);
    size_t length;
    const void *from = gathered(message->msg_iov, message->iov_count, &length);
    uint32_t kind = UNTAGGED | (flags & FI_REMOTE_CQ_DATA ? HAS_DATA : 0);
    ssize_t result = put(self, message->addr, from, length, 0, message->data, kind);
    return tell_sent(self, result, flags, FI_SEND | FI_MSG, length, message->context);
}

// Receiving

// The rest of a long message, whose sender is about to write it. `room` bytes are wanted. Leaves `in` at its last slot.
static void take_long(struct incoming *in, uint8_t *target, size_t room, size_t length) {
    for (size_t rest = length;;) {
        size_t piece = rest < PIECE ? rest : PIECE, wanted = piece < room ? piece : room;
        if (wanted) memcpy(target, in->payload->pieces[in->next % SLOTS], wanted);
        target += wanted;
        room -= wanted;
        rest -= piece;
        if (!rest) return;
        struct slot *slot = &in->ring->slots[++in->next % SLOTS];
        for (uint32_t looks = 1; __atomic_load_n(&slot->stamp, __ATOMIC_ACQUIRE) != in->next + 1; looks++)
            if (looks % 1024 == 0) sched_yield();
    }
}

INLINED void take(struct incoming *in, struct slot *slot, void *target, size_t room, size_t length) {
    if (length == 8 && room >= 8) {
        memcpy(target, slot->bytes, 8);
    } else if (length <= INLINE) {
        memcpy(target, slot->bytes, length < room ? length : room);
    } else if (length <= SMALL) {
        memcpy(target, in->payload->small[in->next % SLOTS], length < room ? length : room);
    } else {
        take_long(in, target, room, length);
    }
}

static uint64_t flags_of(uint32_t word, uint64_t kind) {
    return FI_RECV | kind | (word & HAS_DATA ? FI_REMOTE_CQ_DATA : 0);
}

// A message without a tag goes behind those before it in a buffer, of which there is one.
static void fill(struct endpoint *self, struct incoming *in, struct slot *slot, const struct kept *kept) {
    struct buffer *buffer = self->buffers;
    uint32_t word = kept ? kept->word : slot->word;
    uint64_t data = kept ? kept->data : slot->data, flags = flags_of(word, FI_MSG);
    size_t length = word & LENGTH, room = buffer->length - buffer->filled, given = length < room ? length : room;
    uint8_t *target = buffer->target + buffer->filled;
    if (kept) memcpy(target, kept->bytes, given);
    else take(in, slot, target, room, length);
    buffer->filled += given;
    int is_full = !buffer->is_multiple || buffer->length - buffer->filled < self->least;
    if (is_full && buffer->is_multiple) flags |= FI_MULTI_RECV;
    if (given < length) {
        tell_error(self->receives, buffer->context, flags, given, target, data, 0, length - given, FI_ETRUNC);
    } else {
        tell(self->receives, buffer->context, flags, given, target, data, 0);
    }
    if (!is_full) return;
    self->buffers = buffer->next;
    if (!self->buffers) self->last_buffer = &self->buffers;
    free(buffer);
}

static void keep(struct endpoint *self, struct incoming *in, struct slot *slot) {
    size_t length = slot->word & LENGTH;
    struct kept *kept = malloc(sizeof *kept + length);
    if (!kept) abort();
    *kept = (struct kept){.tag = slot->tag, .data = slot->data, .source = in - self->from, .word = slot->word};
    int is_untagged = (slot->word & UNTAGGED) != 0;
    take(in, slot, kept->bytes, length, length);
    struct kept ***last = is_untagged ? &self->last_kept_untagged : &self->last_kept;
    **last = kept;
    *last = &kept->next;
}

// Takes the next message, which is there. Writes it to `entry` and returns 1 if that is possible.
INLINED int receive(struct endpoint *self, struct incoming *in, struct fi_cq_tagged_entry *entry) {
    struct slot *slot = &in->ring->slots[in->next % SLOTS];
    uint32_t word = slot->word, source = in - self->from;
    uint64_t tag = slot->tag, data = slot->data;
    size_t length = word & LENGTH;
    int is_told = 0;
    if (UNLIKELY(word & UNTAGGED)) {
        if (self->buffers) fill(self, in, slot, 0);
        else keep(self, in, slot);
        goto taken;
    }
    struct posted **link = &self->posted;
    for (struct posted *it; (it = *link); link = &it->next) {
        if ((it->tag ^ tag) & ~it->ignored || (it->source != ANYONE && it->source != source)) continue;
        take(in, slot, it->target, it->length, length);
        uint64_t flags = flags_of(word, FI_TAGGED);
        if (UNLIKELY(length > it->length)) {
            tell_error(self->receives, it->context, flags, it->length, it->target, data, tag, length - it->length,
                       FI_ETRUNC);
        } else if (entry) {
            *entry = (struct fi_cq_tagged_entry){.op_context = it->context, .flags = flags, .len = length,
                                                 .buf = it->target, .data = data, .tag = tag};
            is_told = 1;
        } else {
            tell(self->receives, it->context, flags, length, it->target, data, tag);
        }
        *link = it->next;
        if (!it->next) self->last_posted = link;
        it->next = self->unused;
        self->unused = it;
        goto taken;
    }
    keep(self, in, slot);
taken:
    in->next++;
    if (in->next % TOLD == 0 || length > SMALL) __atomic_store_n(&in->ring->tail, in->next, __ATOMIC_RELEASE);
    return is_told;
}

INLINED int is_there(const struct incoming *in) {
    return __atomic_load_n(&in->ring->slots[in->next % SLOTS].stamp, __ATOMIC_ACQUIRE) == in->next + 1;
}

static int take_kept(struct endpoint *self, void *target, size_t room, uint32_t source, uint64_t tag, uint64_t ignored,
                     void *context) {
    struct kept **link = &self->kept;
    for (struct kept *it; (it = *link); link = &it->next) {
        if ((it->tag ^ tag) & ~ignored || (source != ANYONE && source != it->source)) continue;
        size_t length = it->word & LENGTH, given = length < room ? length : room;
        memcpy(target, it->bytes, given);
        uint64_t flags = flags_of(it->word, FI_TAGGED);
        if (given < length) {
            tell_error(self->receives, context, flags, given, target, it->data, it->tag, length - given, FI_ETRUNC);
        } else {
            tell(self->receives, context, flags, length, target, it->data, it->tag);
        }
        *link = it->next;
        if (!it->next) self->last_kept = link;
        free(it);
        return 1;
    }
    return 0;
}

static ssize_t tagged_recv(struct fid_ep *fid, void *target, size_t length, void *key, fi_addr_t from, uint64_t tag,
                           uint64_t ignored, void *context) {
    struct endpoint *self = SELF(fid);
    uint32_t source = from == FI_ADDR_UNSPEC ? ANYONE : self->addresses[from];
    if (UNLIKELY(self->kept != 0) && take_kept(self, target, length, source, tag, ignored, context)) return 0;
    struct posted *it = self->unused;
    if (UNLIKELY(!it)) return -FI_EAGAIN;
    self->unused = it->next;
    *it = (struct posted){0, target, length, tag, ignored, source, context};
    *self->last_posted = it;
    self->last_posted = &it->next;
    return 0;
}

// Says whether such a message is there, and leaves it.
static ssize_t peek(struct endpoint *self, const struct fi_msg_tagged *message) {
    uint32_t wanted = message->addr == FI_ADDR_UNSPEC ? ANYONE : self->addresses[message->addr];
    for (uint32_t source = 0; source < shared->endpoints; source++)
        while (is_there(&self->from[source])) receive(self, &self->from[source], 0);
    for (struct kept *it = self->kept; it; it = it->next) {
        if ((it->tag ^ message->tag) & ~message->ignore || (wanted != ANYONE && wanted != it->source)) continue;
        tell(self->receives, message->context, flags_of(it->word, FI_TAGGED), it->word & LENGTH, 0, it->data, it->tag);
        return 0;
    }
    tell_error(self->receives, message->context, FI_RECV | FI_TAGGED, 0, 0, 0, message->tag, 0, FI_ENOMSG);
    return 0;
}

static ssize_t tagged_recvmsg(struct fid_ep *fid, const struct fi_msg_tagged *message, uint64_t flags) {
    if ((flags & (FI_PEEK | FI_CLAIM | FI_DISCARD)) == FI_PEEK) return peek(SELF(fid), message);
    if (flags & (FI_PEEK | FI_CLAIM | FI_DISCARD) || message->iov_count > 1) return -FI_ENOSYS;
    void *target = message->iov_count ? message->msg_iov->iov_base : 0;
    size_t length = message->iov_count ? message->msg_iov->iov_len : 0;
    return tagged_recv(fid, target, length, 0, message->addr, message->tag, message->ignore, message->context);
}

static ssize_t untagged_post(struct endpoint *self, void *target, size_t length, void *context, uint64_t flags) {
    struct buffer *buffer = malloc(sizeof *buffer);
    if (!buffer) return -FI_ENOMEM;
    *buffer = (struct buffer){0, target, length, 0, context, (flags & FI_MULTI_RECV) != 0};
    *self->last_buffer = buffer;
    self->last_buffer = &buffer->next;
    while (self->kept_untagged && self->buffers) {
        struct kept *it = self->kept_untagged;
        self->kept_untagged = it->next;
        if (!it->next) self->last_kept_untagged = &self->kept_untagged;
        fill(self, 0, 0, it);
        free(it);
    }
    return 0;
}

static ssize_t untagged_recv(struct fid_ep *fid, void *target, size_t length, void *key, fi_addr_t from,
                             void *context) {
    return untagged_post(SELF(fid), target, length, context, 0);
}

static ssize_t untagged_recvmsg(struct fid_ep *fid, const struct fi_msg *message, uint64_t flags) {
    if (message->iov_count != 1) return -FI_ENOSYS;
    return untagged_post(SELF(fid), message->msg_iov->iov_base, message->msg_iov->iov_len, message->context, flags);
}

// Completions

INLINED void give(const struct queue *queue, void *to, size_t at, const struct fi_cq_tagged_entry *entry) {
    switch (queue->format) {
    case FI_CQ_FORMAT_TAGGED: ((struct fi_cq_tagged_entry *)to)[at] = *entry; break;
    case FI_CQ_FORMAT_DATA: memcpy((struct fi_cq_data_entry *)to + at, entry, sizeof(struct fi_cq_data_entry)); break;
    case FI_CQ_FORMAT_MSG: memcpy((struct fi_cq_msg_entry *)to + at, entry, sizeof(struct fi_cq_msg_entry)); break;
    default: ((struct fi_cq_entry *)to)[at].op_context = entry->op_context;
    }
}

static ssize_t queue_read(struct fid_cq *fid, void *to, size_t count) {
    struct queue *queue = (struct queue *)fid;
    struct endpoint *self = queue->endpoint;
    size_t given = 0;
    if (UNLIKELY(!self)) return -FI_EAGAIN;
    if (UNLIKELY(queue->errors)) return -FI_EAVAIL;
    while (queue->head != queue->tail && given < count)
        give(queue, to, given++, &queue->entries[queue->head++ % COMPLETIONS]);
    if (self->receives == queue) {
        uint32_t endpoints = shared->endpoints;
        int is_direct = queue->head == queue->tail && queue->format == FI_CQ_FORMAT_TAGGED;
        for (uint32_t looks = 0;; looks++) {
            for (uint32_t source = 0; source < endpoints && given < count; source++) {
                struct incoming *in = &self->from[source];
                if (is_there(in)) given += receive(self, in, is_direct ? (struct fi_cq_tagged_entry *)to + given : 0);
            }
            if (given || queue->head != queue->tail || looks >= again || queue->empty || !self->posted) break;
            __builtin_ia32_pause();
        }
        while (UNLIKELY(queue->head != queue->tail) && given < count)
            give(queue, to, given++, &queue->entries[queue->head++ % COMPLETIONS]);
    }
    if (given) {
        queue->empty = 0;
        return given;
    }
    if (UNLIKELY(queue->errors)) return -FI_EAVAIL;
    if (++queue->empty >= yield_after && yield_after) sched_yield();
    return -FI_EAGAIN;
}

static ssize_t queue_readfrom(struct fid_cq *fid, void *to, size_t count, fi_addr_t *sources) {
    ssize_t given = queue_read(fid, to, count);
    for (ssize_t at = 0; at < given; at++) sources[at] = FI_ADDR_NOTAVAIL;
    return given;
}

static ssize_t queue_readerr(struct fid_cq *fid, struct fi_cq_err_entry *to, uint64_t flags) {
    struct queue *queue = (struct queue *)fid;
    if (!queue->errors) return -FI_EAGAIN;
    // As much as the oldest version has.
    memcpy(to, &queue->error[0], 80);
    memmove(&queue->error[0], &queue->error[1], --queue->errors * sizeof queue->error[0]);
    return 1;
}

static const char *queue_strerror(struct fid_cq *fid, int error, const void *data, char *text, size_t length) {
    return "an error of the floor";
}

static uint64_t counter_read(struct fid_cntr *fid) { return 0; }

static ssize_t events_read(struct fid_eq *fid, uint32_t *event, void *to, size_t length, uint64_t flags) {
    return -FI_EAGAIN;
}
