# Read by cpack for each kind of package: a .deb lives in /usr, an archive anywhere.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX "/usr")
endif()
