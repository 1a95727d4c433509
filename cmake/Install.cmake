# What `cmake --install` puts in place. The tree may be moved afterwards: run paths are relative ($ORIGIN).
include(CMakePackageConfigHelpers)
