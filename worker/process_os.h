/* What cohort-worker does to its own process: its end, its group, its signals, its name. */

#ifndef CO_WORKER_PROCESS_OS_H
#define CO_WORKER_PROCESS_OS_H

#include <stdint.h>
#include <sys/types.h>

#include "proto/time.h"

/* Die with the agent: PDEATHSIG, then the check that the agent was still there. Ends the process
 * when it was not. */
void co_process_bind(pid_t agent);

/* Lead a process group of our own, so that a kill reaches whatever the application starts. */
void co_process_lead(void);

/* The name that ps and top show; cut at 15 bytes. */
void co_process_name(const char *name);

/* Close every descriptor from `first` on. Never once PHP runs: it would close OPcache's lock. */
void co_process_close_from(int first);

/* As co_process_close_from(3), but one descriptor stays. */
void co_process_close_but(int fd);

/* Let the agent and what it starts read this process's memory, where Yama forbids it otherwise. */
void co_process_let_read(pid_t agent);

/* Set CLOEXEC on a descriptor that came through exec without it. */
void co_process_keep_from_children(int fd);

/* Undo what the boot may have done to signals: default actions, nothing blocked. SIGPIPE stays
 * ignored and SIGPROF handled, as PHP has them. */
void co_process_reset_signals(void);

/* BOOTTIME in milliseconds and in microseconds. */
co_ms co_process_now(void);
uint64_t co_process_now_us(void);

/* Resident bytes of this process; 0 when /proc is not there. */
uint64_t co_process_rss(void);

#endif /* CO_WORKER_PROCESS_OS_H */
