/* A library that looks like another build of PHP to whoever asks before PHP has started. */

__attribute__((visibility("default"))) int php_embed_init(int argc, char **argv);
__attribute__((visibility("default"))) int php_embed_init(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return -1;
}

#ifdef FAKE_ZTS
__attribute__((visibility("default"))) int tsrm_startup(void);
__attribute__((visibility("default"))) int tsrm_startup(void)
{
    return -1;
}
#endif

extern const char fake_build_id[];
__attribute__((visibility("default"))) const char fake_build_id[] = "API20991231,NTS";
