// An endpoint of libfabric as an MPI opens one: reliable datagrams, tagged messages, one queue for all completions.

#pragma once

#include "conductor.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

// As long as an address may be.
enum { ADDRESS_BYTES = 256 };

struct end {
    struct fid_ep *endpoint;
    struct fid_cq *queue;
    struct fid_av *addresses;
    unsigned char address[ADDRESS_BYTES];
    size_t address_bytes;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;

// A call of libfabric that must succeed. It says so by 0, or by a number that is not negative.
#define MUST(call) must(call, #call)
static ssize_t must(ssize_t result, const char *what) {
    if (result >= 0) return result;
    FAIL("%.60s: %s", what, fi_strerror((int)-result));
}

static void open_domain(const char *provider) {
    struct fi_info *hints = fi_allocinfo();
    hints->caps = FI_TAGGED | FI_MSG;
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup(provider);
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->tx_attr->op_flags = hints->rx_attr->op_flags = FI_COMPLETION;
    MUST(fi_getinfo(FI_VERSION(1, 17), 0, 0, 0, hints, &info));
    MUST(fi_fabric(info->fabric_attr, &fabric, 0));
    MUST(fi_domain(fabric, info, &domain, 0));
    fi_freeinfo(hints);
}

static void open_end(struct end *end) {
    struct fi_av_attr addresses = {.type = FI_AV_TABLE, .count = 4};
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED, .size = 1024};
    MUST(fi_av_open(domain, &addresses, &end->addresses, 0));
    MUST(fi_cq_open(domain, &queue, &end->queue, 0));
    MUST(fi_endpoint(domain, info, &end->endpoint, 0));
    MUST(fi_ep_bind(end->endpoint, &end->addresses->fid, 0));
    MUST(fi_ep_bind(end->endpoint, &end->queue->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
    MUST(fi_enable(end->endpoint));
    end->address_bytes = ADDRESS_BYTES;
    MUST(fi_getname(&end->endpoint->fid, end->address, &end->address_bytes));
}

static fi_addr_t address_of(struct end *end, const unsigned char *address) {
    fi_addr_t known;
    if (fi_av_insert(end->addresses, address, 1, &known, 0, 0) == 1) return known;
    must(-FI_EINVAL, "fi_av_insert");
    return FI_ADDR_UNSPEC;
}
