/* The admin HTTP server: probes, metrics and the view as JSON, on the agent's loop.
 *
 *     /livez /startupz /readyz[?pool=NAME]   200 or 503, with a line that says why
 *     /metrics                               Prometheus text, or OpenMetrics when asked for
 *     /api/v1/status[?workers=0&queues=0]    the view, as in the control protocol
 *     /                                      this list
 *
 * It has no authentication and changes nothing: it is meant for the kubelet, Prometheus and
 * people who may reach the address. A slow or silent client costs one of 64 connections for at
 * most 10 seconds. */

#ifndef CO_AGENT_ADMIN_UV_H
#define CO_AGENT_ADMIN_UV_H

#include <stddef.h>
#include <uv.h>

#include "proto/err.h"
#include "proto/view.h"

#define CO_ADMIN_CONNECTIONS_MAX 64

/* Fill and lend the view as it is now; asked once a request that needs it. */
typedef const struct co_view *co_admin_view(void *arg);

struct co_admin;

/* Listen on address: "127.0.0.1:9090", "[::1]:9090", ":9090" (every IPv4 address). Names are not
 * resolved, but for "localhost". Port 0 lets the system choose.
 *
 * Errors: CO_ECONFIG, CO_EIO, CO_ENOMEM; err names the address and the way out. */
int co_admin_open(uv_loop_t *loop, const char *address, co_admin_view *view, void *arg,
                  struct co_admin **ret_admin, struct co_err *err);

/* The port it listens on. */
unsigned co_admin_port(const struct co_admin *admin);

/* Stop listening, drop the connections and leave NULL; NULL is fine. The memory goes when the loop
 * has closed the handles, so run it once more before uv_loop_close(). */
void co_admin_close(struct co_admin **admin);

#endif /* CO_AGENT_ADMIN_UV_H */
