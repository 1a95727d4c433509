#include "launch/mpi_launcher.hpp"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(MpiLauncher, TheFirstOfTheSameFamilyIsChosen) {
  std::vector<MpiLauncher> const launchers{
      {"mpirun", launcher_version("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...\n")},
      {"mpiexec", launcher_version("mpiexec of another MPI\n")},
      {"mpiexec", launcher_version("mpiexec version 1.8.0 revision 0c0fe6b\n")},
      {"mpiexec.mpich", launcher_version("HYDRA build details:\n    Version:          4.0.2\n")}};
  EXPECT_EQ(launchers[0].version, "Open MPI 4.1.4");
  EXPECT_EQ(launchers[1].version, "");
  EXPECT_EQ(launchers[2].version, "PALS 1.8.0");
  EXPECT_EQ(launchers[3].version, "MPICH 4.0.2");
  EXPECT_EQ(launchers[0].kind(), topology::Launcher::mpirun);
  EXPECT_EQ(launchers[2].kind(), topology::Launcher::pals);
  EXPECT_EQ(launchers[3].kind(), topology::Launcher::hydra);
  EXPECT_EQ(launcher_of("Open MPI v4.1.4", launchers)->program, "mpirun");
  EXPECT_EQ(launcher_of("MPICH 5.0.2", launchers)->version, "PALS 1.8.0");
  EXPECT_EQ(launcher_of("MPICH 5.0.2", {launchers[0], launchers[3]})->program, "mpiexec.mpich");
  EXPECT_FALSE(launcher_of("MPI 5.0", launchers)) << "launchers of unknown MPIs are not used";
  EXPECT_FALSE(launcher_of("MPICH 5.0.2", {}));
}

}  // namespace
}  // namespace tessera::cli
