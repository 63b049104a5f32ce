// The floor: a libfabric provider that carries the messages of MPI programs between processes of one machine, and does
// nothing else. What an MPI takes over it, no provider can better by much.
//
// All processes map one file. It has a ring of slots for each ordered pair of endpoints. A message of up to 40 bytes lies in
// its slot, one of up to 4 KiB in memory beside it, and a longer one takes a slot for each 128 KiB, so that the receiver
// copies a part while the sender writes the next. Receives are matched at the ring: one look through the posted ones, one
// copy to where the receive wants it, and the completion goes straight into the caller's array.
//
// Left out: deaths, a name for an endpoint, waiting asleep, one-sided operations, claims, threads, hostile peers.
//
//   FLOOR_FILE    the file, empty at first
//   FLOOR_AGAIN   how often a read of an empty queue looks again, with a receive posted, after one that found something
//   FLOOR_YIELD   yields after so many reads in a row that found nothing; 0: never

#include "floor_path.h"

static ssize_t endpoint_cancel(fid_t fid, void *context) {
    struct endpoint *self = (struct endpoint *)fid;
    struct posted **link = &self->posted;
    for (struct posted *it; (it = *link); link = &it->next) {
        if (it->context != context) continue;
        *link = it->next;
        if (!it->next) self->last_posted = link;
        it->next = self->unused;
        self->unused = it;
        tell_error(self->receives, context, FI_RECV | FI_TAGGED, 0, 0, 0, 0, 0, FI_ECANCELED);
        return 0;
    }
    struct buffer **buffers = &self->buffers;
    for (struct buffer *it; (it = *buffers); buffers = &it->next) {
        if (it->context != context) continue;
        *buffers = it->next;
        if (!it->next) self->last_buffer = buffers;
        tell_error(self->receives, context, FI_RECV | FI_MSG | FI_MULTI_RECV, 0, 0, 0, 0, 0, FI_ECANCELED);
        free(it);
        return 0;
    }
    return -FI_ENOENT;
}

static int endpoint_setopt(fid_t fid, int level, int option, const void *value, size_t length) {
    if (option != FI_OPT_MIN_MULTI_RECV || length != sizeof(size_t)) return -FI_ENOPROTOOPT;
    ((struct endpoint *)fid)->least = *(const size_t *)value;
    return 0;
}

static int endpoint_getopt(fid_t fid, int level, int option, void *value, size_t *length) {
    if (option != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
    *(size_t *)value = ((struct endpoint *)fid)->least;
    *length = sizeof(size_t);
    return 0;
}

static void name(uint32_t number, void *to, size_t *length) {
    char address[ADDRESS_BYTES] = "floor";
    memcpy(address + 8, &number, sizeof number);
    memcpy(to, address, *length < ADDRESS_BYTES ? *length : ADDRESS_BYTES);
    *length = ADDRESS_BYTES;
}

static int endpoint_getname(fid_t fid, void *to, size_t *length) {
    int result = *length < ADDRESS_BYTES ? -FI_ETOOSMALL : 0;
    name(((struct endpoint *)fid)->number, to, length);
    return result;
}

static int addresses_insert(struct fid_av *fid, const void *from, size_t count, fi_addr_t *to, uint64_t flags,
                            void *context) {
    struct addresses *self = (struct addresses *)fid;
    for (size_t at = 0; at < count; at++) {
        if (self->count == ADDRESSES) return at;
        memcpy(&self->of[self->count], (const char *)from + at * ADDRESS_BYTES + 8, sizeof self->of[0]);
        if (to) to[at] = self->count;
        self->count++;
    }
    return count;
}

static int addresses_lookup(struct fid_av *fid, fi_addr_t address, void *to, size_t *length) {
    name(((struct addresses *)fid)->of[address], to, length);
    return 0;
}

static const char *addresses_text(struct fid_av *fid, const void *address, char *text, size_t *length) {
    uint32_t number;
    memcpy(&number, (const char *)address + 8, sizeof number);
    *length = snprintf(text, *length, "floor:%u", number) + 1;
    return text;
}

static int close_any(struct fid *fid) {
    if (fid->fclass != FI_CLASS_FABRIC) free(fid);
    return 0;
}

static int endpoint_bind(struct fid *fid, struct fid *other, uint64_t flags) {
    struct endpoint *self = (struct endpoint *)fid;
    if (other->fclass == FI_CLASS_AV) self->addresses = ((struct addresses *)other)->of;
    if (other->fclass != FI_CLASS_CQ) return 0;
    struct queue *queue = (struct queue *)other;
    queue->endpoint = self;
    if (flags & FI_RECV) self->receives = queue;
    if (!(flags & FI_TRANSMIT)) return 0;
    self->sends = queue;
    self->tells_sends = !(flags & FI_SELECTIVE_COMPLETION);
    return 0;
}

#define OPS(bind) {sizeof(struct fi_ops), close_any, bind, ACCEPT, REFUSE, REFUSE, REFUSE}
static struct fi_ops plain = OPS(ACCEPT), endpoint_plain = OPS(endpoint_bind);
static struct fi_ops_ep endpoint_ops = {sizeof endpoint_ops, endpoint_cancel, endpoint_getopt, endpoint_setopt,
                                        REFUSE, REFUSE, REFUSE, REFUSE};
static struct fi_ops_cm name_ops = {sizeof name_ops, REFUSE, endpoint_getname, REFUSE, REFUSE,
                                    REFUSE, REFUSE, REFUSE, REFUSE, REFUSE};
static struct fi_ops_msg untagged_ops = {sizeof untagged_ops, untagged_recv, REFUSE, untagged_recvmsg, untagged_send,
                                         untagged_sendv, untagged_sendmsg, untagged_inject, REFUSE, REFUSE};
static struct fi_ops_tagged tagged_ops = {sizeof tagged_ops, tagged_recv, REFUSE, tagged_recvmsg, tagged_send,
                                          tagged_sendv, tagged_sendmsg, tagged_inject, tagged_senddata,
                                          tagged_injectdata};
static struct fi_ops_rma rma_ops = {sizeof rma_ops, REFUSE, REFUSE, REFUSE, REFUSE, REFUSE, REFUSE, REFUSE, REFUSE,
                                    REFUSE};
static struct fi_ops_atomic atomic_ops = {sizeof atomic_ops, REFUSE, REFUSE, REFUSE, REFUSE, REFUSE, REFUSE, REFUSE,
                                          REFUSE, REFUSE, REFUSE, REFUSE, REFUSE, REFUSE};
static struct fi_ops_cq queue_ops = {sizeof queue_ops, queue_read, queue_readfrom, queue_readerr, REFUSE, REFUSE,
                                     ACCEPT, queue_strerror};
static struct fi_ops_cntr counter_ops = {sizeof counter_ops, counter_read, counter_read, ACCEPT, ACCEPT, REFUSE,
                                         ACCEPT, ACCEPT};
static struct fi_ops_av address_ops = {sizeof address_ops, addresses_insert, REFUSE, REFUSE, ACCEPT, addresses_lookup,
                                       addresses_text, REFUSE};
static struct fi_ops_eq event_ops = {sizeof event_ops, events_read, REFUSE, REFUSE, REFUSE, REFUSE};

// Every object begins with its fid.
static void *object(size_t bytes, size_t class, struct fi_ops *ops, void *context) {
    struct fid *fid;
    if (posix_memalign((void **)&fid, 64, bytes)) return 0;
    memset(fid, 0, bytes);
    *fid = (struct fid){class, context, ops};
    return fid;
}

static int open_addresses(struct fid_domain *domain, struct fi_av_attr *wanted, struct fid_av **made, void *context) {
    // MPICH 4.2 would take a named one for one that other processes filled.
    if (wanted->name || wanted->flags & FI_READ) return -FI_ENOSYS;
    if (!(*made = object(sizeof(struct addresses), FI_CLASS_AV, &plain, context))) return -FI_ENOMEM;
    (*made)->ops = &address_ops;
    return 0;
}

static int open_queue(struct fid_domain *domain, struct fi_cq_attr *wanted, struct fid_cq **made, void *context) {
    struct queue *queue = object(sizeof *queue, FI_CLASS_CQ, &plain, context);
    if (!queue) return -FI_ENOMEM;
    queue->fid.ops = &queue_ops;
    queue->format = wanted->format;
    *made = &queue->fid;
    return 0;
}

static int open_counter(struct fid_domain *domain, struct fi_cntr_attr *wanted, struct fid_cntr **made, void *context) {
    if (!(*made = object(sizeof **made, FI_CLASS_CNTR, &plain, context))) return -FI_ENOMEM;
    (*made)->ops = &counter_ops;
    return 0;
}

static uint32_t number_of(const char *variable) {
    const char *text = getenv(variable);
    return text ? strtoul(text, 0, 10) : 0;
}

static int attach(void) {
    if (shared) return 0;
    const char *path = getenv("FLOOR_FILE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return -FI_ENOENT;
    void *mapped = MAP_FAILED;
    if (!ftruncate(file, sizeof *shared))
        mapped = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return -FI_ENOMEM;
    shared = mapped;
    again = number_of("FLOOR_AGAIN");
    yield_after = number_of("FLOOR_YIELD");
    return 0;
}

static int open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **made, void *context) {
    int result = attach();
    if (result) return result;
    uint32_t number = __atomic_fetch_add(&shared->endpoints, 1, __ATOMIC_SEQ_CST);
    if (number >= ENDPOINTS) return -FI_EMFILE;
    struct endpoint *self = object(sizeof *self, FI_CLASS_EP, &endpoint_plain, context);
    struct posted *unused = calloc(COMPLETIONS, sizeof *unused);
    if (!self || !unused) return -FI_ENOMEM;
    self->fid.ops = &endpoint_ops;
    self->fid.cm = &name_ops;
    self->fid.msg = &untagged_ops;
    self->fid.tagged = &tagged_ops;
    self->fid.rma = &rma_ops;
    self->fid.atomic = &atomic_ops;
    self->number = number;
    self->send_flags = info->tx_attr->op_flags;
    self->least = 64;
    for (int other = 0; other < ENDPOINTS; other++) {
        self->to[other].ring = &shared->rings[number][other];
        self->to[other].payload = &shared->payloads[number][other];
        self->from[other].ring = &shared->rings[other][number];
        self->from[other].payload = &shared->payloads[other][number];
    }
    self->last_posted = &self->posted;
    self->last_kept = &self->kept;
    self->last_kept_untagged = &self->kept_untagged;
    self->last_buffer = &self->buffers;
    for (int at = COMPLETIONS - 1; at >= 0; at--) {
        unused[at].next = self->unused;
        self->unused = &unused[at];
    }
    *made = &self->fid;
    return 0;
}

static int register_memory(struct fid *domain, const void *memory, size_t length, uint64_t access, uint64_t offset,
                           uint64_t key, uint64_t flags, struct fid_mr **made, void *context) {
    if (!(*made = object(sizeof **made, FI_CLASS_MR, &plain, context))) return -FI_ENOMEM;
    (*made)->key = key;
    return 0;
}

static struct fi_ops_domain domain_ops = {sizeof domain_ops, open_addresses, open_queue, open_endpoint, REFUSE,
                                          open_counter, REFUSE, REFUSE, REFUSE, REFUSE, REFUSE, REFUSE};
static struct fi_ops_mr memory_ops = {sizeof memory_ops, register_memory, REFUSE, REFUSE};

static int open_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **made, void *context) {
    if (!(*made = object(sizeof **made, FI_CLASS_DOMAIN, &plain, context))) return -FI_ENOMEM;
    (*made)->ops = &domain_ops;
    (*made)->mr = &memory_ops;
    return 0;
}

static int open_events(struct fid_fabric *fabric, struct fi_eq_attr *wanted, struct fid_eq **made, void *context) {
    if (!(*made = object(sizeof **made, FI_CLASS_EQ, &plain, context))) return -FI_ENOMEM;
    (*made)->ops = &event_ops;
    return 0;
}

static struct fi_ops_fabric fabric_ops = {sizeof fabric_ops, open_domain, REFUSE, open_events, REFUSE, REFUSE, REFUSE};
static struct fid_fabric the_fabric = {{FI_CLASS_FABRIC, 0, &plain}, &fabric_ops, 0};

static int open_fabric(struct fi_fabric_attr *wanted, struct fid_fabric **made, void *context) {
    the_fabric.fid.context = context;
    *made = &the_fabric;
    return 0;
}

#define CAPABILITIES (FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_LOCAL_COMM | \
                      FI_REMOTE_COMM)
// A format that no other provider has.
#define FORMAT 0x8f100000

static int get_info(uint32_t version, const char *node, const char *service, uint64_t flags,
                    const struct fi_info *hints, struct fi_info **made) {
    if (hints && hints->ep_attr && hints->ep_attr->type != FI_EP_UNSPEC && hints->ep_attr->type != FI_EP_RDM)
        return -FI_ENODATA;
    if (hints && hints->caps & ~CAPABILITIES) return -FI_ENODATA;
    if (hints && hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != FORMAT) return -FI_ENODATA;
    // Newer versions have longer structures, and release each by itself.
    enum { ROOM = 512 };
    struct fi_info *info = calloc(1, ROOM);
    struct fi_domain_attr *domain = calloc(1, ROOM);
    if (!info || !domain) return -FI_ENOMEM;
    info->tx_attr = calloc(1, ROOM);
    info->rx_attr = calloc(1, ROOM);
    info->ep_attr = calloc(1, ROOM);
    info->fabric_attr = calloc(1, ROOM);
    if (!info->tx_attr || !info->rx_attr || !info->ep_attr || !info->fabric_attr) return -FI_ENOMEM;
    uint64_t has = CAPABILITIES;
    if (hints && hints->caps) has = hints->caps | FI_SEND | FI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM;
    info->caps = info->tx_attr->caps = info->rx_attr->caps = has;
    info->addr_format = FORMAT;
    info->tx_attr->msg_order = info->rx_attr->msg_order = FI_ORDER_SAS;
    info->tx_attr->inject_size = INJECTED;
    info->tx_attr->size = info->rx_attr->size = 1024;
    info->tx_attr->iov_limit = info->rx_attr->iov_limit = 4;
    if (hints && hints->tx_attr) info->tx_attr->op_flags = hints->tx_attr->op_flags;
    if (hints && hints->rx_attr) info->rx_attr->op_flags = hints->rx_attr->op_flags;
    info->ep_attr->type = FI_EP_RDM;
    info->ep_attr->protocol = FORMAT;
    info->ep_attr->protocol_version = 1;
    info->ep_attr->max_msg_size = LONGEST;
    info->ep_attr->mem_tag_format = 0xaaaaaaaaaaaaaaaa;
    info->ep_attr->tx_ctx_cnt = info->ep_attr->rx_ctx_cnt = 1;
    const struct fi_domain_attr *wanted = hints ? hints->domain_attr : 0;
    info->domain_attr = domain;
    domain->name = strdup("floor");
    domain->threading = wanted && wanted->threading ? wanted->threading : FI_THREAD_DOMAIN;
    domain->control_progress = wanted && wanted->control_progress ? wanted->control_progress : FI_PROGRESS_MANUAL;
    domain->data_progress = wanted && wanted->data_progress ? wanted->data_progress : FI_PROGRESS_MANUAL;
    domain->resource_mgmt = FI_RM_ENABLED;
    domain->av_type = wanted && wanted->av_type ? wanted->av_type : FI_AV_TABLE;
    domain->mr_mode = wanted ? wanted->mr_mode & FI_MR_ENDPOINT : 0;
    domain->mr_key_size = domain->cq_data_size = 8;
    domain->cq_cnt = domain->ep_cnt = domain->tx_ctx_cnt = domain->rx_ctx_cnt = domain->cntr_cnt = 256;
    domain->max_ep_tx_ctx = domain->max_ep_rx_ctx = domain->mr_iov_limit = 1;
    domain->caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
    domain->mr_cnt = 65535;
    info->fabric_attr->name = strdup("floor");
    *made = info;
    return 0;
}

static void clean_up(void) {}

// Its version of libfabric is one that no program is newer than.
static struct fi_provider provider = {.version = FI_VERSION(1, 0), .fi_version = FI_VERSION(2, 99), .name = "floor",
                                      .getinfo = get_info, .fabric = open_fabric, .cleanup = clean_up};

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void) { return &provider; }
