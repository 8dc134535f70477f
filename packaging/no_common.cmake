# llama-cpp-python forces this option on after it has read CMAKE_ARGS, and never loads what it builds: 63 % of the build time.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)
