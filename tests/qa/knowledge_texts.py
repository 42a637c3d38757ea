"""Two texts that questions are asked about, one in English and one in Chinese."""

BOAT_TEXT = " ".join(
    [
        *(
            f"{boat} is a boat. The captain of {boat} is {captain}. {boat}'s length is {length} m. "
            f"The launch date of {boat} is 2024-0{month}-11."
            for boat, captain, length, month in (
                ("Blue Heron", "Ada Finch", 12, 1),
                ("Red Kite", "Ben Cole", 20, 2),
                ("Grey Gull", "Ada Finch", 15, 3),
                ("Black Tern", "Cora Dean", 9, 4),
                ("White Egret", "Ben Cole", 31, 5),
            )
        ),
        *(
            f"{captain} is a captain. The age of {captain} is {age}."
            for captain, age in (("Ada Finch", 52), ("Ben Cole", 41), ("Cora Dean", 37))
        ),
    ]
)
ZH_TEXT = "".join(
    [
        *(
            f"{listing}是一个房源。{listing}的经纪人是{agent}。{listing}的要价是{price}。"
            for listing, agent, price in (
                ("绿野新居", "欧阳雪", 512),
                ("朗月公馆", "司徒亮", 300),
                ("和风小筑", "欧阳雪", 421),
                ("晴川府邸", "上官文", 702),
                ("云顶花园", "司徒亮", 655),
            )
        ),
        *(
            f"{agent}是一名经纪人。{agent}的佣金是{fee}。"
            for agent, fee in (("欧阳雪", 12), ("司徒亮", 17), ("上官文", 23))
        ),
    ]
)
