/* NVIDIA's headers include this file of their compiler; what they need of it is in host_defines.h. */
#pragma once
