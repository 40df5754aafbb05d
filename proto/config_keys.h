/* The keys of the configuration: one table that files, environment, flags and `config explain`
 * share. Used by config*.c alone; everybody else wants config.h. */

#ifndef CO_PROTO_CONFIG_KEYS_H
#define CO_PROTO_CONFIG_KEYS_H

#include "proto/config.h"

/* A path is what stands in a file: "", "admin", "pools.jobs.job.timeout". All return 0 or
 * CO_ECONFIG, with a message that begins with the path. */

/* A mapping begins at path: check that one belongs there, and make the app or pool it names. */
int co_config_keys_enter(struct co_config *config, const char *path, struct co_err *err);

/* A list begins at path: may one stand there? Its items then come joined by commas. */
int co_config_keys_list(const struct co_config *config, const char *path, struct co_err *err);

/* A value stands at path. */
int co_config_keys_assign(struct co_config *config, const char *path, const char *value,
                          struct co_config_origin origin, struct co_err *err);

/* Set by short name, as co_config_set() describes. */
int co_config_keys_set(struct co_config *config, const char *name, const char *value,
                       enum co_config_from from, struct co_err *err);

/* Where the value of a key came from, by its scope ("", "apps", "pools"), its name there and
 * the app's or pool's index; the key must exist. */
struct co_config_origin *co_config_keys_origin(struct co_config *config, const char *scope,
                                               const char *name, uint32_t instance);

/* May an app or a pool have this name? */
bool co_config_keys_name_ok(const char *name);

#endif /* CO_PROTO_CONFIG_KEYS_H */
