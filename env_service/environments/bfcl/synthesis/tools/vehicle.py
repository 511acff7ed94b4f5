"""VehicleControlAPI: a car, its doors, engine, brakes and tank, and the way to a city.

get_outside_temperature_from_weather_com has no entry: it always answers with an error.
"""

from typing import Any

from env_service.environments.bfcl.synthesis.sources import Arguments, Source, Tool

_ZIP_CODES = {
    "Rivermist": "83214",
    "Stonebrook": "74532",
    "Maplecrest": "56108",
    "Silverpine": "62947",
    "Shadowridge": "71354",
    "Sunset Valley": "83462",
    "Oakendale": "47329",
    "Willowbend": "52013",
    "Crescent Hollow": "69238",
    "Autumnville": "51479",
    "San Francisco": "94016",
}
_DISTANCES = (
    *(("83214", "74532"), ("56108", "62947"), ("71354", "83462"), ("47329", "52013")),
    *(("69238", "51479"), ("94016", "83214"), ("62947", "47329"), ("94016", "62947")),
    ("74532", "94016"),
)
"""Pairs of zip codes whose distance the tool knows."""
_DOORS = ["driver", "passenger", "rear_left", "rear_right"]
_MOST_FUEL = 50
_PHRASES_OF_DOORS = {
    "driver, passenger, rear_left and rear_right": "all four doors",
    "driver": "the driver's door",
    "passenger": "the passenger's door",
    "rear_left": "the rear left door",
    "rear_right": "the rear right door",
}
_STATUS = {
    "fuel": "the tank",
    "battery": "the battery",
    "doors": "the doors",
    "climate": "the air conditioning",
    "headlights": "the lights",
    "parkingBrake": "the parking brake",
    "engine": "the engine",
}


def _doors(s: Source, x: Any) -> Arguments:
    """All doors, or one that is not yet as wanted."""
    unlock = all(status == "locked" for status in x.doorStatus.values())
    wanted = "unlocked" if unlock else "locked"
    left = [door for door in _DOORS if x.doorStatus.get(door, wanted) != wanted]
    single = left and s.rng.random() < 0.3
    return {"unlock": unlock, "door": [s.pick(left)] if single else list(_DOORS)}


def _the_start(s: Source, x: Any) -> Arguments | None:
    ready = x.brakePedalStatus == "pressed" and x.remainingUnlockedDoors == 0
    return {"ignitionMode": "START"} if ready and x.engine_state != "running" else None


def _some_fuel(s: Source, x: Any) -> Arguments | None:
    room = int(_MOST_FUEL - x.fuelLevel) - 1
    if room < 1:
        return None
    before = s.latest("amount")
    fits = isinstance(before, int | float) and 0 < before <= room
    return {"fuelAmount": before if fits else s.number(1, room)}


def _two_cities(s: Source, x: Any) -> Arguments | None:
    known = [pair for pair in _DISTANCES if set(pair) <= s.memory.names.keys()]
    start, end = s.two(s.pick(known or _DISTANCES))
    return {"cityA": start, "cityB": end}


def _a_city(s: Source, x: Any) -> Arguments:
    """A city whose distance to one that was looked up is known, if there is one."""
    near = [
        city
        for city, code in _ZIP_CODES.items()
        for pair in _DISTANCES
        if code in pair and code not in s.memory.names and set(pair) & s.memory.names.keys()
    ]
    return {"city": s.pick(near or list(_ZIP_CODES))}


def _a_climate(s: Source, x: Any) -> Arguments:
    return {
        "temperature": s.number(17, 27),
        "unit": "celsius",
        "fanSpeed": s.number(2, 9) * 10,
        "mode": s.pick(("auto", "cool", "heat", "defrost")),
    }


def _a_cruise(s: Source, x: Any) -> Arguments | None:
    speed = {"speed": s.number(6, 24) * 5, "activate": True}
    distance = {"distanceToNextVehicle": s.number(3, 20) * 10}
    return {**speed, **distance} if x.engine_state == "running" else None


TOOLS = {
    "activateParkingBrake": Tool(
        lambda s, x: {
            "mode": "release"
            if x.parkingBrakeStatus == "engaged"
            else s.pick(("engage", "release"))
        },
        (
            "{mode} the parking brake",
            "{mode} the brake for parking",
            "{mode} the hand brake",
        ),
        phrases={"mode": {"engage": "engage", "release": "release"}},
    ),
    "adjustClimateControl": Tool(
        _a_climate,
        (
            "set the air conditioning to {temperature} degrees {unit}, fan speed {fanSpeed}, mode "
            "{mode}",
            "make it {temperature} degrees {unit} in here, with the fan at {fanSpeed} and in the "
            "mode {mode}",
            "run the climate system in the mode {mode} at {temperature} degrees {unit} with a fan "
            "speed of {fanSpeed}",
        ),
    ),
    "check_tire_pressure": Tool(
        lambda s, x: {},
        (
            "check the air in the tires",
            "tell me how the tires are",
            "see whether the pressure of the tires is right",
        ),
    ),
    "displayCarStatus": Tool(
        lambda s, x: {"option": s.pick(tuple(_STATUS))},
        (
            "show me the status of {option}",
            "tell me how things stand with {option}",
            "report the state of {option}",
        ),
        phrases={"option": _STATUS},
    ),
    "display_log": Tool(
        lambda s, x: {"messages": [s.sentence()]},
        (
            "show '{messages}' in the car's log",
            "write '{messages}' on the log display",
            "enter '{messages}' in the log of the car",
        ),
    ),
    "estimate_distance": Tool(
        _two_cities,
        (
            "estimate the distance between {cityA} and {cityB}",
            "tell me how far it is from {cityA} to {cityB}",
            "work out how long the way from {cityA} to {cityB} is",
        ),
        kinds={"distance": "distance"},
    ),
    "estimate_drive_feasibility_by_mileage": Tool(
        lambda s, x: {"distance": s.latest("distance") or s.number(50, 900)},
        (
            "tell me whether the fuel is enough for {distance}",
            "check if I can drive {distance} with what is in the tank",
            "see whether we get {distance} far without a stop",
        ),
        kinds={"distance": "distance"},
    ),
    "fillFuelTank": Tool(
        _some_fuel,
        (
            "put {fuelAmount} of fuel in the tank",
            "fill {fuelAmount} into the tank",
            "refuel the car by {fuelAmount}",
        ),
        kinds={"fuelAmount": "amount"},
    ),
    "find_nearest_tire_shop": Tool(
        lambda s, x: {},
        (
            "look for a tire shop nearby",
            "tell me where the closest tire shop is",
            "get me the address of the nearest shop for tires",
        ),
        kinds={"shopLocation": "shop"},
    ),
    "gallon_to_liter": Tool(
        lambda s, x: {"gallon": s.number(2, 40)},
        (
            "convert {gallon} gallons to liters",
            "tell me how many liters {gallon} gallons are",
            "express {gallon} gallons in liters",
        ),
    ),
    "get_current_speed": Tool(
        lambda s, x: {},
        ("tell me how fast we are", "read the speedometer", "check the speed of the car"),
    ),
    "get_outside_temperature_from_google": Tool(
        lambda s, x: {},
        (
            "ask Google how warm it is outside",
            "check Google for the temperature outside",
            "tell me the temperature out there according to Google",
        ),
    ),
    "get_zipcode_based_on_city": Tool(
        _a_city,
        (
            "look up the zip code of {city}",
            "tell me which zip code {city} has",
            "get me {city}'s zip code",
        ),
        names={"zipcode": "city"},
    ),
    "liter_to_gallon": Tool(
        lambda s, x: {"liter": s.number(2, 80)},
        (
            "convert {liter} liters to gallons",
            "tell me how many gallons {liter} liters are",
            "express {liter} liters in gallons",
        ),
        kinds={"gallon": "amount"},
    ),
    "lockDoors": Tool(
        _doors,
        (
            "{unlock} {door}",
            "make sure to {unlock} {door}",
            "go and {unlock} {door} of the car",
        ),
        phrases={"unlock": {"True": "unlock", "False": "lock"}, "door": _PHRASES_OF_DOORS},
    ),
    "pressBrakePedal": Tool(
        lambda s, x: {"pedalPosition": 1.0} if x.brakePedalStatus != "pressed" else None,
        (
            "press the brake {pedalPosition}",
            "step on the brake, {pedalPosition}",
            "push the brake pedal {pedalPosition}",
        ),
        phrases={"pedalPosition": {"1": "all the way down"}},
    ),
    "releaseBrakePedal": Tool(
        lambda s, x: {} if x.brakePedalStatus == "pressed" and s.rng.random() < 0.4 else None,
        ("let go of the brake", "release the brake pedal", "take the foot off the brake"),
    ),
    "setCruiseControl": Tool(
        _a_cruise,
        (
            "switch the cruise control {activate} at {speed} with {distanceToNextVehicle} meters "
            "to the next car",
            "turn cruise control {activate}: speed {speed}, distance {distanceToNextVehicle} m",
            "put the cruise control {activate}, keep {distanceToNextVehicle} meters of distance "
            "and go at {speed}",
        ),
        phrases={"activate": {"True": "on"}},
    ),
    "setHeadlights": Tool(
        lambda s, x: {"mode": s.pick(("off", "auto")) if x.headLightStatus == "on" else "on"},
        (
            "set the headlights to {mode}",
            "put the lights in front to {mode}",
            "switch the headlights to {mode}",
        ),
    ),
    "set_navigation": Tool(
        lambda s, x: {
            "destination": s.latest("shop")
            or f"{s.number(10, 999)} {s.name()} Street, {s.pick(tuple(_ZIP_CODES))}"
        },
        (
            "navigate to {destination}",
            "set the route to {destination}",
            "guide me to {destination}",
        ),
        kinds={"destination": "shop"},
    ),
    "startEngine": Tool(
        _the_start,
        ("{ignitionMode} the engine", "{ignitionMode} the motor", "{ignitionMode} the car"),
        phrases={"ignitionMode": {"START": "start"}},
    ),
}
"""By the tool's name."""
